package node

import (
	"context"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// Push uploads an image to the node's registry under a name with a tag, like "disk:1", and returns
// the reference that the node pulls it by.
func (n *Node) Push(ctx context.Context, name string, img v1.Image) (ref string, err error) {
	ref = registryAddress + "/" + name
	_, err = images.Push(ctx, ref, img, images.PushOptions{Transport: n.RegistryTransport()})
	return ref, err
}

// PushBusybox uploads the busybox image, for containers of tests, and returns its reference.
func (n *Node) PushBusybox(ctx context.Context) (ref string, err error) {
	img, err := images.Busybox(ctx, n.GuestOptions())
	if err != nil {
		return "", err
	}
	return n.Push(ctx, "busybox:dev", img)
}

// GuestOptions are those that guests and images for this node are built with.
func (n *Node) GuestOptions() guest.Options {
	return guest.Options{Cache: n.o.Cache, Log: n.o.Log}
}

// pushPause uploads the image of every pod's sandbox.
func (n *Node) pushPause(ctx context.Context) error {
	img, err := images.Pause(ctx, n.GuestOptions())
	if err != nil {
		return err
	}
	_, err = n.Push(ctx, strings.TrimPrefix(pauseImage, registryAddress+"/"), img)
	return err
}
