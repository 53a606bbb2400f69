package badinput

import (
	"encoding/json"
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

const mebibyte = 1 << 20

// suite is the node that all cases share, and the shim's socket.
type suite struct {
	n     *node.Node
	tools string // the folder of the programs that holdable wrote
	pods  runtimeapi.RuntimeServiceClient
	imgs  runtimeapi.ImageServiceClient
	disk  string // the reference of an image with a sound disk
}

func TestBadInput(t *testing.T) {
	s := newSuite(t)
	for _, group := range []struct {
		name  string
		cases []badCase
	}{
		{"pod", podCases()},
		{"vmi", vmiCases()},
		{"container", containerCases()},
		{"image", imageOfPodCases()},
		{"layers", layerCases()},
		{"platform", platformCases()},
		{"bomb", bombCases()},
		{"start", startCases()},
		{"iscsi", inMode(vmspec.ModeISCSI, iscsiCases())},
	} {
		t.Run(group.name, func(t *testing.T) { s.checkGroup(t, group.name, group.cases) })
	}
	t.Run("disk", func(t *testing.T) { s.testDisks(t, "disk", diskCases(t)) })
	t.Run("disk in image", func(t *testing.T) { s.testDisks(t, "image", imageCases()) })
	t.Run("compressed clusters", s.testCompressedClusters)
	t.Run("image removed", s.testImageRemoved)
	t.Run("full disk", func(t *testing.T) { s.testFullDisk(t, vmspec.ModeFile) })
	t.Run("full disk, iSCSI", func(t *testing.T) { s.testFullDisk(t, vmspec.ModeISCSI) }) // answered the same
	t.Run("odd names, iSCSI", s.testOddNames)
	t.Run("libvirtd away", s.testLibvirtdAway)
	t.Run("caller gone", s.testCallerGone)
}

func (s *suite) checkGroup(t *testing.T, name string, cases []badCase) {
	a := readAnswers(t, name)
	before := s.census(t)
	var shared *pod
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ref := s.imageFor(t, c)
			switch {
			case c.at == atPull:
				s.checkPull(t, c, ref, a)
			case c.sharesPod():
				if shared == nil {
					shared = s.run(t, "pod", nil)
				}
				s.checkContainer(t, c, shared, newContainer(ref, c.container), a)
			default:
				s.checkPod(t, c, ref, a)
			}
		})
	}
	if shared != nil {
		s.remove(t, shared)
		s.wantNothingSince(t, before)
	}
	if golden.FlagUpdate() {
		a.write(t)
	}
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	tools := t.TempDir()
	dnsmasq := holdable(t, tools, "dnsmasq")
	n := node.ForTest(t, node.Options{
		Subnet: netip.MustParsePrefix("10.98.0.0/16"),
		ShimConfig: func(c map[string]any) {
			c["tools"] = map[string]any{"dnsmasq": dnsmasq}
			c["vm"].(map[string]any)["max_disk_size"] = "1Ti"
		},
	})
	conn, err := node.DialCRI(n.ShimSocket())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s := &suite{
		n:     n,
		tools: tools,
		pods:  runtimeapi.NewRuntimeServiceClient(conn),
		imgs:  runtimeapi.NewImageServiceClient(conn),
	}
	s.disk = s.push(t, "sound", imageOf(t, soundDisk()))
	s.pull(t, s.disk)
	// The first pod brings the node's bridge, and the first VM libvirtd's folders, which stay.
	p := s.run(t, "first", nil)
	s.boot(t, p)
	s.remove(t, p)
	if _, err := n.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// soundDisk is an image's files: a disk that boots and says so.
func soundDisk() []images.File {
	return []images.File{{Name: "disk", Data: guest.BootSector("booted", guest.Halt)}}
}

// pod is a sandbox that runs.
type pod struct {
	id     string
	made   node.Pod
	config *runtimeapi.PodSandboxConfig
}

// newPod is a pod that could hold a VM, changed by a function.
func (s *suite) newPod(t *testing.T, name string, change func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	p := &pod{made: s.n.NewPod(name), config: &runtimeapi.PodSandboxConfig{}}
	text, err := json.Marshal(p.made)
	if err == nil {
		err = json.Unmarshal(text, p.config)
	}
	assert.NilError(t, err)
	p.config.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"10.98.0.1"}}
	if change != nil {
		change(p.config)
	}
	return p
}

func (s *suite) runPod(t *testing.T, p *pod) error {
	t.Helper()
	reply, err := s.pods.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{
		Config: p.config, RuntimeHandler: "vm",
	})
	p.id = reply.GetPodSandboxId()
	return err
}

// run starts a pod that has nothing wrong with it.
func (s *suite) run(t *testing.T, name string, change func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	p := s.newPod(t, name, change)
	assert.NilError(t, s.runPod(t, p))
	return p
}

func (s *suite) remove(t *testing.T, p *pod) {
	t.Helper()
	assert.NilError(t, s.n.RemovePod(t.Context(), p.id, p.made))
}

// newContainer is a VM container with nothing wrong with it but maybe its image.
func newContainer(ref string, change func(*runtimeapi.ContainerConfig)) *runtimeapi.ContainerConfig {
	c := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm"},
		Image:    &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: ref},
		LogPath:  "vm_0.log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 * mebibyte},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func (s *suite) create(t *testing.T, p *pod, c *runtimeapi.ContainerConfig) (id string, err error) {
	t.Helper()
	reply, err := s.pods.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, Config: c, SandboxConfig: p.config,
	})
	return reply.GetContainerId(), err
}

func (s *suite) start(t *testing.T, id string) error {
	t.Helper()
	_, err := s.pods.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// boot runs a VM that has nothing wrong with it.
func (s *suite) boot(t *testing.T, p *pod) (id string) {
	t.Helper()
	id, err := s.create(t, p, newContainer(s.disk, nil))
	assert.NilError(t, err)
	assert.NilError(t, s.start(t, id))
	return id
}

func (s *suite) removeContainer(t *testing.T, id string) {
	t.Helper()
	_, err := s.pods.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
	assert.NilError(t, err)
}
