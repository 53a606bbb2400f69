package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/ceph"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

// suite is what the tests share. It is set before the first test runs.
var suite struct {
	*node.Node
	shim, containerd *grpc.ClientConn
	cri              runtimeapi.RuntimeServiceClient
	images           runtimeapi.ImageServiceClient

	tiny    string // image with guest.Tiny as /disk
	agent   string // image with guest.TinyWithAgent as /disk
	kernel  string // image with guest.Tiny as /disk/disk.qcow2, and its kernel in /boot
	halt    string // image with a guest that says "halted" and ignores the power button
	busybox string
}

func TestMain(m *testing.M) {
	os.Exit(node.Main(&clean{M: m}, node.Options{
		Subnet6: netip.MustParsePrefix("fd00:10:244:1::/64"),
		// Long enough for a tgtd that is only restarted.
		ShimConfig: func(c map[string]any) {
			c["iscsi"] = map[string]any{"timeout": "5s"}
			c["disks"] = map[string]any{"network": true, "ceph_networks": []string{ceph.Network}}
		},
	}, prepare))
}

// clean are tests of which nothing may be left, if they pass. Err says what is left.
type clean struct {
	*testing.M

	err error
}

func (c *clean) Err() error { return c.err }

func (c *clean) Run() (code int) {
	ctx := context.Background()
	before, err := suite.Settled(ctx)
	if err == nil {
		code = c.M.Run()
	}
	if err == nil && code == 0 {
		err = suite.SameAgain(ctx, before, 3*time.Minute)
	}
	if err != nil {
		c.err = fmt.Errorf("census of the node: %w", err)
	}
	return code
}

// prepare connects to the node and pushes the images.
func prepare(ctx context.Context, n *node.Node) (err error) {
	s := &suite
	s.Node = n
	if s.shim, err = node.DialCRI(s.ShimSocket()); err != nil {
		return err
	}
	if s.containerd, err = node.DialCRI(s.ContainerdSocket()); err != nil {
		return err
	}
	s.cri, s.images = runtimeapi.NewRuntimeServiceClient(s.shim), runtimeapi.NewImageServiceClient(s.shim)
	if s.busybox, err = s.PushBusybox(ctx); err != nil {
		return err
	}
	disk, err := guest.Tiny(ctx, s.GuestOptions())
	if err != nil {
		return err
	}
	if s.tiny, err = pushDisk(ctx, "tiny:1", disk, images.DiskOptions{}); err != nil {
		return err
	}
	withAgent, err := guest.TinyWithAgent(ctx, s.GuestOptions())
	if err != nil {
		return err
	}
	if s.agent, err = pushDisk(ctx, "tiny-agent:1", withAgent, images.DiskOptions{}); err != nil {
		return err
	}
	k, err := guest.TinyKernel(ctx, s.GuestOptions())
	if err != nil {
		return err
	}
	boot := []images.File{{Name: "boot/vmlinuz", From: k.Image}, {Name: "boot/initrd", From: k.Initrd}}
	if s.kernel, err = pushDisk(ctx, "tiny-kernel:1", disk, images.DiskOptions{
		AsFolder: true, Above: [][]images.File{boot},
	}); err != nil {
		return err
	}
	sector := filepath.Join(s.Dir(), "halt.img")
	if err := os.WriteFile(sector, guest.BootSector("halted", guest.Halt), 0o644); err != nil {
		return err
	}
	if s.halt, err = pushDisk(ctx, "halt:1", sector, images.DiskOptions{}); err != nil {
		return err
	}
	for _, ref := range []string{s.busybox, s.tiny, s.agent, s.kernel, s.halt} {
		if err := pull(ctx, ref); err != nil {
			return err
		}
	}
	return firstPod(ctx)
}

// firstPod runs and removes a VM's pod: the first one of a node brings the pods'
// bridge and libvirt's folders.
func firstPod(ctx context.Context) error {
	p := suite.NewPod("first")
	id, err := suite.RunPod(ctx, p, "vm")
	if err != nil {
		return err
	}
	c := node.NewContainer("guest", suite.halt)
	c["linux"] = map[string]any{"resources": map[string]any{"memory_limit_in_bytes": guestMemory}}
	vm, err := suite.CreateContainer(ctx, id, p, c)
	if err != nil {
		return err
	}
	if _, err := suite.Crictl(ctx, "start", vm); err != nil {
		return err
	}
	return suite.RemovePod(ctx, id, p)
}

func pushDisk(ctx context.Context, name, path string, o images.DiskOptions) (ref string, err error) {
	img, err := images.RegistryDisk(path, o)
	if err != nil {
		return "", err
	}
	return suite.Push(ctx, name, img)
}

func pull(ctx context.Context, ref string) error {
	_, err := suite.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return err
}
