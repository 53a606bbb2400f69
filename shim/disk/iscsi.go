package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/shim/domain"
)

// ISCSI is what disks over iSCSI need.
type ISCSI struct {
	Daemon  daemon
	Key     iscsi.Key
	Secrets secrets
	// Patience is how long a portal may not answer until the disks of its users fail; 0
	// means for ever.
	Patience time.Duration
	Logger   *slog.Logger
}

// overISCSI is a registry disk that tgtd serves to its VM, which logs in with its
// own credentials. tgtd serves a raw file: where files can be cloned, the file of mode
// raw; else the overlay of mode file, which a dedicated process shows as raw. Neither
// is a copy.
type overISCSI struct {
	passive
	raw     raw
	overlay overlay
	images  imageOpener
	views   views
	targets targets
	key     iscsi.Key
	secrets secrets
	groups  groups
}

func (o overISCSI) takesTime(Disk) bool { return o.raw.expander.Reflink() }

// recover knows the file of mode raw, which may not be there.
func (o overISCSI) recover(k Disk, active bool) error { return o.raw.recover(k, active) }

func (o overISCSI) create(ctx context.Context, k Disk) error {
	if o.raw.expander.Reflink() {
		return o.raw.create(ctx, k)
	}
	return o.overlay.create(ctx, k)
}

func (o overISCSI) attach(ctx context.Context, k Disk) (map[string][]*os.File, error) {
	return nil, o.restore(ctx, k)
}

// restore makes the missing parts of attach, also while the VM runs.
func (o overISCSI) restore(ctx context.Context, k Disk) error {
	if err := o.serve(ctx, k); err != nil {
		return err
	}
	return setSecret(ctx, o.secrets, k, domain.SecretISCSI, o.access(k).Password.Reveal())
}

// serve makes tgtd serve the raw file.
func (o overISCSI) serve(ctx context.Context, k Disk) error {
	path, err := o.shown(ctx, k)
	if err != nil {
		return err
	}
	return o.targets.Serve(ctx, iscsi.Target{Access: o.access(k), Path: path, ReadOnly: k.ReadOnly})
}

// shown returns the path of the raw file.
func (o overISCSI) shown(ctx context.Context, k Disk) (string, error) {
	if path := o.writable(k); path == o.raw.writable(k) {
		return path, nil
	}
	pid, err := o.views.Process(viewOf(k))
	if err != nil {
		return "", err
	}
	if pid == 0 {
		pid, err = o.show(ctx, k)
	} else {
		err = o.place(k, pid) // the shim that started it may have ended before
	}
	return rawview.Path(pid), err
}

func (o overISCSI) show(ctx context.Context, k Disk) (pid int, err error) {
	top, err := openOverlay(o.overlay.writable(k)) // whose process says only that it has ended
	if err != nil {
		return 0, err
	}
	if err := top.Close(); err != nil {
		return 0, err
	}
	base, err := o.images.Open(ctx, k.image(), k.image().Path)
	if err != nil {
		return 0, err
	}
	defer base.Close()
	return o.views.Show(ctx, rawview.View{
		ID: viewOf(k), Overlay: o.overlay.writable(k), BaseFormat: string(k.image().Format),
		UID: k.VM.Domain.UID, GID: k.VM.Domain.UID, Durable: k.standalone,
		Started: func(pid int) error { return o.place(k, pid) }, // the kernel takes as long for it as the process does to be ready
	}, base)
}

// place moves a view's process to the cgroup of the VM, which QEMU's own work on the
// disk would count for.
func (o overISCSI) place(k Disk, pid int) error {
	if k.standalone {
		return nil
	}
	return o.groups.Add(k.VM, pid)
}

// breakOff takes the disk from a target in use, which stays without a disk.
func (o overISCSI) breakOff(ctx context.Context, k Disk) error {
	if err := o.targets.Break(ctx, o.access(k).Name); err != nil {
		return err
	}
	return o.views.Hide(ctx, viewOf(k))
}

func (o overISCSI) detach(ctx context.Context, k Disk) error {
	return errors.Join(o.secrets.RemoveSecret(ctx, secretOf(k)), o.unserve(ctx, k))
}

func (o overISCSI) unserve(ctx context.Context, k Disk) error {
	return errors.Join(o.targets.Remove(ctx, o.access(k)), o.views.Hide(ctx, viewOf(k)))
}

// setSecret passes the password of a disk to libvirtd.
func setSecret(ctx context.Context, s secrets, k Disk, kind domain.SecretKind, password string) error {
	pod := k.VM.Sandbox.Value.GetMetadata()
	return s.SetSecret(ctx, domain.Secret{
		UUID: secretOf(k), Kind: kind, Usage: k.usage(),
		Description: fmt.Sprintf("nodevirt: disk %s of pod %s/%s", k.Name, pod.GetNamespace(), pod.GetName()),
	}, password)
}

func (o overISCSI) describe(k Disk) domain.Disk {
	access := o.access(k)
	// An error stops the guest until the disk is restored, see package vm. The guest
	// would take it for the end of the disk.
	return domain.Disk{ErrorPolicy: "stop", Layers: []domain.Layer{{
		Format: string(imageunpack.Raw), Path: o.writable(k), ReadOnly: k.ReadOnly,
		ISCSI: &domain.ISCSI{
			Portal: o.targets.Portal(), Target: access.Name, LUN: iscsi.LUN,
			Initiator: access.Initiator, User: access.User, Secret: secretOf(k),
		},
	}}}
}

// writable returns the file that create made.
func (o overISCSI) writable(k Disk) string {
	path := o.raw.writable(k)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return o.overlay.writable(k)
	}
	return path
}

func (o overISCSI) access(k Disk) iscsi.Access { return o.key.Access(k.VM.ID + "/" + k.Name) }

// secretOf returns the UUID of a disk's secret. It is the container's: a domain that comes from
// another node keeps its own UUID.
func secretOf(k Disk) string { return uuid.NewSHA1(uuid.Nil, []byte(k.usage())).String() }

// usage names the disk, uniquely in this libvirtd.
func (k Disk) usage() string { return k.VM.ID + "/" + k.Name }

// viewOf names a disk's view. [Container] reads the container from the name.
func viewOf(k Disk) string {
	sum := sha256.Sum256([]byte(k.Name))
	return k.VM.ID + "." + hex.EncodeToString(sum[:6])
}

// ours reports whether a target is one that Key names, and not another program's.
func ours(name string) bool { return strings.HasPrefix(name, iscsi.Authority) }
