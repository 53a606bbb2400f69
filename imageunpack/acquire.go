package imageunpack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Acquire finds and checks the disk of an image, and holds it for owner until [Unpacker.Release].
//
// Image is a name that containerd has, a CRI image id, or a short form of either.
// Path names a file, relative to /disk or absolute ("a.qcow2" or "/disk/a.qcow2"); without one the disk is /disk
// itself, or the only file in it.
//
// It may be called again for the same owner, for example after a crash before the disk was stored.
// If it fails, it removes all that it made. Errors: [ErrNoDisk], one that matches
// [ErrUnusable], or containerd's own.
func (u *Unpacker) Acquire(ctx context.Context, owner, image, path string) (Disk, error) {
	var found Disk
	held, err := u.hold(ctx, owner, image, func(mounts []mount.Mount, c config) (err error) {
		found, err = u.examine(ctx, mounts, path)
		if err == nil { // not earlier: an image without a disk is a sidecar's, and for containerd to check
			err = CheckPlatform(c.os, c.arch, u.opts.Architectures...)
			found.Architecture = platforms.Normalize(ocispec.Platform{OS: c.os, Architecture: c.arch}).Architecture
		}
		return err
	})
	if err != nil {
		return Disk{}, err
	}
	found.Owner, found.Image, found.ImageID = held.Owner, held.Image, held.ImageID
	found.Snapshotter, found.Snapshot, found.Lease = held.Snapshotter, held.Snapshot, held.Lease
	return found, nil
}

// AcquireImage holds an image for owner, as [Unpacker.Acquire] does, for a VM that uses
// files of the image and no disk in it. The Disk has no path; [Unpacker.Open]
// opens the files.
func (u *Unpacker) AcquireImage(ctx context.Context, owner, image string) (Disk, error) {
	return u.hold(ctx, owner, image, func([]mount.Mount, config) error { return nil })
}

// hold makes the lease and the view of an image, which check may refuse.
func (u *Unpacker) hold(
	ctx context.Context, owner, image string, check func([]mount.Mount, config) error,
) (_ Disk, err error) {
	ctx = u.inNamespace(ctx)
	img, err := u.image(ctx, image)
	if err != nil {
		return Disk{}, err
	}
	config, err := readConfig(ctx, img)
	if err != nil {
		return Disk{}, err
	}
	lease, undoLease, err := u.lease(ctx, owner)
	if err != nil {
		return Disk{}, err
	}
	ctx = leases.WithLease(ctx, lease) // the calls below add what they make to the lease
	parent, err := u.unpack(ctx, img, config.layers)
	if err != nil {
		// An interrupted unpacking leaves part of a layer, which may be large: remove it now.
		return Disk{}, errors.Join(err, undoLease(leases.SynchronousDelete))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undoLease())
		}
	}()
	mounts, undoView, err := u.view(ctx, lease, parent)
	if err == nil {
		if err = check(mounts, config); err != nil {
			err = errors.Join(maybeDamaged(err), undoView())
		}
	}
	if err != nil {
		return Disk{}, fmt.Errorf("image %q: %w", img.Name(), err)
	}
	return Disk{
		Owner: owner, Image: img.Name(), ImageID: config.id.String(),
		Snapshotter: u.opts.Snapshotter, Snapshot: lease, Lease: lease,
	}, nil
}

// maybeDamaged adds to an error of an incomplete disk that the node's copy may be the cause, and not the image.
func maybeDamaged(err error) error {
	if errors.Is(err, ErrEmpty) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w%s", err, pullAgain)
	}
	return err
}

// unpack returns the chain id of an image's topmost layer. It unpacks the image if needed: the
// image may have been pulled for another snapshotter, or loaded without unpacking.
func (u *Unpacker) unpack(ctx context.Context, img containerd.Image, layers []digest.Digest) (string, error) {
	if len(layers) == 0 {
		return "", fmt.Errorf("image %q has no layers: %w", img.Name(), ErrNoDisk)
	}
	unpacked, err := img.IsUnpacked(ctx, u.opts.Snapshotter)
	if err == nil && !unpacked {
		err = img.Unpack(ctx, u.opts.Snapshotter)
	}
	if err != nil && strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		err = fmt.Errorf("%w: %w", syscall.ENOSPC, err) // containerd's answer has it as text
	}
	if errdefs.IsNotFound(err) {
		err = fmt.Errorf("its layers are not on this node: pull it again, with the snapshotter that "+
			"containerd.snapshotter of the shim's config names: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("unpack image %q with snapshotter %s: %w",
			img.Name(), u.opts.Snapshotter, err)
	}
	return identity.ChainID(layers).String(), nil
}
