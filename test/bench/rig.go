package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/slowlink"
)

// rig is a node with connections to both ends that are compared.
type rig struct {
	*node.Node
	Options
	conns            []*grpc.ClientConn
	shim, containerd cri.RuntimeServiceClient
	images           cri.ImageServiceClient
	fs               string        // of the node's own; empty if it is the machine's
	link             slowlink.Link // from the registry
}

func newRig(ctx context.Context, n *node.Node, o Options, b bench) (*rig, error) {
	r := &rig{Node: n, Options: o, fs: b.fs, link: b.images.link}
	for _, socket := range []string{n.ShimSocket(), n.ContainerdSocket()} {
		conn, err := node.DialCRI(socket)
		if err != nil {
			return nil, err
		}
		r.conns = append(r.conns, conn)
	}
	r.shim, r.containerd = cri.NewRuntimeServiceClient(r.conns[0]), cri.NewRuntimeServiceClient(r.conns[1])
	r.images = cri.NewImageServiceClient(r.conns[1])
	// The first pod of a node brings the bridge of all pods.
	p, err := r.runPod(ctx, r.containerd, "first", "")
	if err != nil {
		return nil, err
	}
	return r, p.remove(ctx)
}

// fileSystem is where the node's files are, for a reader.
func (r *rig) fileSystem() string {
	if r.fs == "" {
		return "the machine's file system"
	}
	return r.fs
}

func (r *rig) close() error {
	var errs []error
	for _, c := range r.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// pushDisk makes an image of a disk and has the node pull it.
func (r *rig) pushDisk(ctx context.Context, name, path string) (ref string, err error) {
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	if err != nil {
		return "", err
	}
	if ref, err = r.Push(ctx, name, img); err != nil {
		return "", err
	}
	return ref, r.pull(ctx, ref)
}

func (r *rig) pull(ctx context.Context, ref string) error {
	_, err := r.images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
	return err
}

// tiny is an image with a guest that boots, and its disk.
func (r *rig) tiny(ctx context.Context) (ref, path string, err error) {
	if path, err = guest.Tiny(ctx, r.GuestOptions()); err != nil {
		return "", "", err
	}
	ref, err = r.pushDisk(ctx, "tiny:1", path)
	return ref, path, err
}

// halted is an image with a guest that says a word and sleeps.
func (r *rig) halted(ctx context.Context) (ref string, err error) {
	path := filepath.Join(r.Dir(), "halt.img")
	if err := os.WriteFile(path, guest.BootSector("halted", guest.Halt), 0o644); err != nil {
		return "", fmt.Errorf("write a boot sector: %w", err)
	}
	return r.pushDisk(ctx, "halt:1", path)
}

// busybox is an image for ordinary containers.
func (r *rig) busybox(ctx context.Context) (ref string, err error) {
	if ref, err = r.PushBusybox(ctx); err != nil {
		return "", err
	}
	return ref, r.pull(ctx, ref)
}
