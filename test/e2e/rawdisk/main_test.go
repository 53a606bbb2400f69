package rawdisk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/hold"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

const mebibyte = 1 << 20

// giveUp is how long the shim continues an expansion that no caller waits for.
const giveUp = 10 * time.Second

// suite is what the tests share. They run one after the other: some hold the shim's
// qemu-img, and one kills the shim.
var suite struct {
	*node.Node
	cri     runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	convert string // a program that can be held
	halt    string // image with a disk that says "halted"
}

func TestMain(m *testing.M) {
	os.Exit(loopfs.Private(func() int { return onXFS(m) }))
}

// onXFS runs the tests with a node that keeps everything on a file system with reflinks.
func onXFS(m *testing.M) int {
	top, err := os.MkdirTemp("", "nvx")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.Remove(top) }()
	// What is on it does not outlive its descriptor: a sparse file takes what is written.
	fs, err := loopfs.New(filepath.Dir(top), loopfs.XFS, 4<<30)
	if err == nil {
		err = errors.Join(fs.Attach(top), os.Chmod(top, 0o711), os.Setenv("TMPDIR", top))
	}
	if err != nil {
		panic(err)
	}
	defer func() {
		if err := errors.Join(loopfs.Detach(top), fs.Close()); err != nil {
			panic(err)
		}
	}()
	bin, err := heldBin()
	if err != nil {
		panic(err)
	}
	return node.Main(m, node.Options{
		Bin:    bin,
		Subnet: netip.MustParsePrefix("10.97.0.0/16"),
		ShimConfig: func(c map[string]any) {
			c["disks"] = map[string]any{"mode": "raw", "give_up": giveUp.String(), "reserve": "64Mi"}
		},
	}, prepare)
}

// heldBin makes a folder with the node's programs, whose shim finds a program that can be held in the
// place of the one that confines qemu-img.
func heldBin() (string, error) {
	bin, err := os.MkdirTemp("", "bin")
	if err != nil {
		return "", err
	}
	from, err := node.CheckoutBin()
	if err != nil {
		return "", err
	}
	programs, err := os.ReadDir(from)
	if err != nil {
		return "", err
	}
	for _, p := range programs {
		if name := p.Name(); name != shimProgram && name != viewProgram {
			if err := os.Symlink(filepath.Join(from, name), filepath.Join(bin, name)); err != nil {
				return "", err
			}
		}
	}
	// The shim looks beside its own file, not beside a link to it.
	shim, err := os.ReadFile(filepath.Join(from, shimProgram))
	if err != nil {
		return "", err
	}
	suite.convert, err = hold.Program(bin, filepath.Join(from, viewProgram))
	return bin, errors.Join(err, os.Chmod(bin, 0o755), os.WriteFile(filepath.Join(bin, shimProgram), shim, 0o755))
}

// The programs of the shim and of what it starts to confine qemu-img.
const (
	shimProgram = "nodevirt-shim"
	viewProgram = "nodevirt-view"
)

func prepare(ctx context.Context, n *node.Node) error {
	suite.Node = n
	conn, err := node.DialCRI(n.ShimSocket())
	if err != nil {
		return err
	}
	suite.cri, suite.images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	suite.halt, err = push(ctx, "halt", "halted")
	return err
}

// push makes an image that there was never before, whose guest says a word, and has
// the node pull it.
func push(ctx context.Context, name, word string) (ref string, err error) {
	sector := filepath.Join(suite.Dir(), name+".img")
	if err := os.WriteFile(sector, guest.BootSector(fmt.Sprint(word, " ", time.Now().UnixNano()), guest.Halt), 0o644); err != nil {
		return "", err
	}
	img, err := images.RegistryDisk(sector, images.DiskOptions{})
	if err != nil {
		return "", err
	}
	if ref, err = suite.Push(ctx, name+":1", img); err != nil {
		return "", err
	}
	_, err = suite.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return ref, err
}

// pod is a VM's, and is removed when its test ends.
type pod struct {
	t      *testing.T
	id     string
	made   node.Pod
	config *runtimeapi.PodSandboxConfig
}

func runPod(t *testing.T, name string, change ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	p := &pod{t: t, made: suite.NewPod(name), config: &runtimeapi.PodSandboxConfig{}}
	text, err := json.Marshal(p.made)
	assert.NilError(t, err)
	assert.NilError(t, protojson.Unmarshal(text, p.config))
	for _, f := range change {
		f(p.config)
	}
	reply, err := suite.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: p.config, RuntimeHandler: "vm"})
	assert.NilError(t, err)
	p.id = reply.PodSandboxId
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
		defer cancel()
		assert.NilError(t, suite.RemovePod(ctx, p.id, p.made))
	})
	return p
}

// create asks for the pod's VM once.
func (p *pod) create(ctx context.Context, image string, change ...func(*runtimeapi.ContainerConfig)) (id string, err error) {
	c := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm"},
		Image:    &runtimeapi.ImageSpec{Image: image},
		LogPath:  "vm_0.log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 * mebibyte},
		},
	}
	for _, f := range change {
		f(c)
	}
	reply, err := suite.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, Config: c, SandboxConfig: p.config,
	})
	return reply.GetContainerId(), err
}
