package imageunpack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
)

const (
	// prefix comes before the owner in the names of leases and views.
	prefix = "nodevirt-"
	// ownerLabel marks a lease as one of ours, and holds its owner.
	ownerLabel = "nodevirt.io/disk-owner"
	// settleTimeout is how long a call that makes or removes something may take.
	settleTimeout = 10 * time.Second
)

// lease makes owner's lease. The undo does nothing if the lease existed before.
func (u *Unpacker) lease(
	ctx context.Context, owner string,
) (id string, undo func(...leases.DeleteOpt) error, err error) {
	if owner == "" {
		return "", nil, errors.New("a disk needs an owner")
	}
	id = prefix + owner
	err = settled(ctx, func(ctx context.Context) error {
		_, err := u.client.LeasesService().Create(ctx,
			leases.WithID(id), leases.WithLabel(ownerLabel, owner))
		return err
	})
	if errdefs.IsAlreadyExists(err) {
		return id, func(...leases.DeleteOpt) error { return nil }, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("make lease %s: %w", id, err)
	}
	return id, func(opts ...leases.DeleteOpt) error {
		return settled(ctx, func(ctx context.Context) error { return u.deleteLease(ctx, id, opts...) })
	}, nil
}

// view makes the read-only view of parent, with the name of the lease, and returns its mounts. It
// uses the view of an earlier call again if that shows the same image; then the undo keeps it.
func (u *Unpacker) view(
	ctx context.Context, key, parent string,
) (mounts []mount.Mount, undo func() error, err error) {
	info, err := u.snapshots().Stat(ctx, key)
	switch {
	case err == nil && info.Parent == parent:
		mounts, err := u.adoptView(ctx, key)
		if !errdefs.IsNotFound(err) { // else garbage collection was faster than the new lease
			return mounts, func() error { return nil }, err
		}
	case err == nil: // the name has become another image's since
		err = u.removeView(ctx, key)
	case errdefs.IsNotFound(err):
		err = nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look for view %s: %w", key, err)
	}
	err = settled(ctx, func(ctx context.Context) error {
		mounts, err = u.snapshots().View(ctx, key, parent)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make view %s: %w", key, err)
	}
	return mounts, func() error {
		return settled(ctx, func(ctx context.Context) error { return u.removeView(ctx, key) })
	}, nil
}

// adoptView adds an existing view to its lease, which may be newer, and returns its mounts.
func (u *Unpacker) adoptView(ctx context.Context, key string) ([]mount.Mount, error) {
	resource := leases.Resource{ID: key, Type: "snapshots/" + u.opts.Snapshotter}
	err := u.client.LeasesService().AddResource(ctx, leases.Lease{ID: key}, resource)
	if err != nil {
		return nil, fmt.Errorf("add view %s to its lease: %w", key, err)
	}
	mounts, err := u.snapshots().Mounts(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get the mounts of view %s: %w", key, err)
	}
	return mounts, nil
}

// Release releases the disk that [Unpacker.Acquire] holds for owner, if any. Open descriptors stay
// valid.
func (u *Unpacker) Release(ctx context.Context, owner string) error {
	ctx = u.inNamespace(ctx)
	id := prefix + owner
	// The lease is removed last: while it exists, Owners finds what a crash left.
	if err := u.removeView(ctx, id); err != nil {
		return err
	}
	return u.deleteLease(ctx, id)
}

// Owners returns the owners of the disks that are held, in no order.
func (u *Unpacker) Owners(ctx context.Context) ([]string, error) {
	ours := fmt.Sprintf("labels.%q", ownerLabel)
	found, err := u.client.LeasesService().List(u.inNamespace(ctx), ours)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	owners := make([]string, 0, len(found))
	for _, l := range found {
		owners = append(owners, l.Labels[ownerLabel])
	}
	return owners, nil
}

func (u *Unpacker) removeView(ctx context.Context, key string) error {
	if err := u.snapshots().Remove(ctx, key); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove view %s: %w", key, err)
	}
	return nil
}

func (u *Unpacker) deleteLease(ctx context.Context, id string, opts ...leases.DeleteOpt) error {
	err := u.client.LeasesService().Delete(ctx, leases.Lease{ID: id}, opts...)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete lease %s: %w", id, err)
	}
	return nil
}

// settled runs f, which makes or removes something in containerd, on a bounded context that doesn't
// end with ctx: the effect of a cancelled call is unknown, and an undo must run when ctx has ended.
func settled(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return f(ctx)
}
