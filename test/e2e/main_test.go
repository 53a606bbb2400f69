package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	kernel  string // image with guest.Tiny as /disk/disk.qcow2, and its kernel in /boot
	halt    string // image with a guest that says "halted" and heeds no power button
	busybox string
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "nodevirt-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, node.Purge(ctx, dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { // QEMU's uid looks into it
		return 1, err
	}
	n, err := node.Start(ctx, node.Options{Dir: dir, Bound: true})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, n.Stop(ctx)) }()
	suite.Node = n
	if err := prepare(ctx); err != nil {
		return 1, err
	}
	before, err := census(ctx)
	if err != nil {
		return 1, err
	}
	code = m.Run()
	if code != 0 {
		for _, name := range []string{node.Containerd, node.Libvirtd, node.Shim} {
			fmt.Println(n.LogTail(name, 40))
		}
		return code, nil
	}
	return code, nothingLeft(ctx, before)
}

// census is what there is in the node. Processes go by their names alone: tests
// restart the node's daemons.
func census(ctx context.Context) (node.Census, error) {
	c, err := suite.Leftovers(ctx)
	for i, p := range c["process"] {
		_, c["process"][i], _ = strings.Cut(p, " ")
	}
	return c, err
}

// nothingLeft compares the node with what it was. Some of what ends does so a
// moment after the call that ended it.
func nothingLeft(ctx context.Context, before node.Census) error {
	var diff []string
	for range 50 {
		after, err := census(ctx)
		if err != nil {
			return err
		}
		if diff = after.Diff(before); len(diff) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("after all tests the node holds other things than before:\n%s", strings.Join(diff, "\n"))
}

// prepare connects to the node and pushes the images.
func prepare(ctx context.Context) (err error) {
	s := &suite
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
	for _, ref := range []string{s.busybox, s.tiny, s.kernel, s.halt} {
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
