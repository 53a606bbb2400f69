package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/compat"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/save"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// resumption is a checkpoint from which a container's guest goes on. It is in the container's
// image, or an archive of the node that takes the place of the image's name.
type resumption struct {
	files    checkpoint.Files
	manifest checkpoint.Manifest
	// close closes the archive; nil for an image.
	close func() error
	// once says that the guest goes on from it once: the disks on volumes can be those of its moment.
	once bool
}

// release closes what the checkpoint is read from. It is a step of an undo.
func (f *resumption) release(context.Context) error {
	if f.close == nil {
		return nil
	}
	err := f.close()
	f.close = nil
	return err
}

// unusable gives an error of a checkpoint the kind of an invalid request.
func unusable(err error) error {
	if errors.Is(err, checkpoint.ErrUnusable) || errors.Is(err, compat.ErrShape) {
		return fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	return err
}

// archive returns the checkpoint at a path, which a call names, or has in place of the image's name;
// nil for an image's name. The kubelet accepts no path there: only a program with root's rights on the
// node sends one. The guest of a migration comes from its source alone.
func (c *creator) archive(r record.Container, config *runtimeapi.ContainerConfig, path string) (*resumption, error) {
	if !filepath.IsAbs(path) || r.Incoming != "" {
		return nil, nil
	}
	a, err := checkpoint.OpenArchive(path)
	if errors.Is(err, fs.ErrNotExist) && path == config.GetImage().GetImage() {
		return nil, nil // containerd says that there is no such image
	}
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), unusable(err))
	}
	m, err := checkpoint.Read(a)
	if err == nil {
		return &resumption{files: a, manifest: m, close: a.Close}, nil
	}
	if errors.Is(err, fs.ErrNotExist) && vmspec.VMContainer(r.Sandbox.Value.GetAnnotations()) == "" {
		err = fmt.Errorf("%w: %w", vmerrors.ErrNotVM, err)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w: it is no checkpoint of a VM", vmerrors.ErrInvalid, err)
	}
	return nil, errors.Join(fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), unusable(err)), a.Close())
}

// inVolume finds the checkpoint in the volume that the container mounts for it, if there is one. The
// guest of a migration comes from its source alone.
func (c *creator) inVolume(n *draft, config *runtimeapi.ContainerConfig) error {
	folder, err := vmspec.Checkpoint(config)
	if err != nil {
		return fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	if folder == "" || n.from != nil || n.rec.Incoming != "" {
		return nil
	}
	f, err := disk.Archives{}.Open(folder, vmspec.CheckpointFile)
	if err != nil {
		return fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	a, err := checkpoint.ReadArchive(f)
	if err != nil {
		return unusable(err)
	}
	m, err := checkpoint.Read(a)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err), a.Close())
	}
	n.from = &resumption{files: a, manifest: m, close: a.Close, once: true}
	n.undo = append(n.undo, n.from.release)
	return nil
}

// inImage finds the checkpoint in the container's image, if there is one.
func (c *creator) inImage(ctx context.Context, n *draft) error {
	if n.from != nil || n.own == nil || n.rec.Incoming != "" {
		return nil
	}
	files := checkpoint.Folder(imageunpack.ErrNotFound, func(name string) (io.ReadCloser, error) {
		return c.images.Open(ctx, *n.own, "/"+name)
	})
	m, err := checkpoint.Read(files)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unusable(err)
	}
	n.from = &resumption{files: files, manifest: m}
	return nil
}

// accept checks that the guest of a checkpoint can go on in the VM that the pod asks for, on an
// accelerator, and records the checkpoint. What the devices are is checked when they have their names, at the start.
func (c *creator) accept(ctx context.Context, n *draft, accelerator domain.Accelerator) error {
	if n.from == nil {
		return nil
	}
	m := n.from.manifest
	if err := save.Fits(n.rec, m.Volumes); err != nil {
		return err
	}
	if err := sameVolumes(n); err != nil {
		return err
	}
	if m.Accelerator != string(accelerator) {
		return fmt.Errorf("%w: checkpoint: its guest ran on %.20q, and guests of this node run on %q", vmerrors.ErrInvalid, m.Accelerator, accelerator)
	}
	own, err := c.moves.Guest(n.rec)
	if err != nil {
		return err
	}
	if own.CPU != m.CPU {
		return fmt.Errorf("%w: checkpoint: its guest has its node's own CPU, and the nodes' differ: %q here and %.200q there: "+
			"name a model in spec.domain.cpu.model", vmerrors.ErrInvalid, own.CPU, m.CPU)
	}
	f, g := own.Firmware, m.Firmware
	if (f == nil) != (g == nil) || f != nil && (f.Code != g.Code || f.Variables != g.Variables || f.SMM != g.SMM) {
		return fmt.Errorf("%w: checkpoint: the UEFI firmware is another one: %s here", vmerrors.ErrInvalid, f)
	}
	if err := c.sameBases(ctx, n.rec, m); err != nil {
		return err
	}
	if err := c.sameDisks(n.rec, m); err != nil {
		return err
	}
	if most := lockable(n.rec.Spec); uint64(m.Memory.Size) > most+most/256 {
		return fmt.Errorf("%w: checkpoint: %d bytes of memory are more than the VM can have", vmerrors.ErrInvalid, m.Memory.Size)
	}
	n.rec.Restored = &m
	if !n.from.once {
		n.rec.Fork = &record.Fork{}
	}
	return nil
}

// sameVolumes returns an error if the disks on volumes are not those that were saved with the
// memory, or if a later start would go on from it again.
func sameVolumes(n *draft) error {
	var own []string
	for _, d := range n.rec.Spec.Disks {
		if m, _ := d.Transfer(); m == vmspec.TransferShared {
			own = append(own, d.Name)
		}
	}
	was := slices.Sorted(slices.Values(n.from.manifest.Volumes))
	if slices.Sort(own); !slices.Equal(own, was) {
		return fmt.Errorf("%w: checkpoint: its disks on volumes are %.300q, and those of the VM are %.300q", vmerrors.ErrInvalid, was, own)
	}
	if len(own) > 0 && !n.from.once {
		return fmt.Errorf("%w: checkpoint: its guest has disks on volumes: restore a VirtualMachineSnapshot", vmerrors.ErrInvalid)
	}
	return nil
}

// sameBases returns an error for a disk in an image that is not the one above which the guest
// wrote. An image that was built from the VM's has the same disk in another image. A disk on a
// volume is that of the guest, whatever image it began as.
func (c *creator) sameBases(ctx context.Context, r record.Container, m checkpoint.Manifest) error {
	found, onVolume := 0, vmspec.OnVolumes(r.Spec.Disks)
	for name, d := range r.Disks {
		if d.Image == nil || onVolume(name) {
			continue
		}
		base, ok := m.Bases[name]
		if !ok {
			return fmt.Errorf("%w: checkpoint: it has no disk %q of an image", vmerrors.ErrInvalid, name)
		}
		found++
		if base.Image == d.Image.ImageID && base.Path == d.Image.Path {
			continue
		}
		f, err := c.images.Open(ctx, *d.Image, d.Image.Path)
		if err != nil {
			return fmt.Errorf("disk %q: %w", name, err)
		}
		sum, err := save.Checksum(ctx, f)
		if err != nil {
			return fmt.Errorf("disk %q: read its image: %w", name, err)
		}
		if sum != base.SHA256 {
			return fmt.Errorf("%w: checkpoint: disk %q was that of image %.80q, and %q has another one: build the checkpoint's image from the VM's",
				vmerrors.ErrInvalid, name, base.Image, d.Image.Image)
		}
	}
	bases := 0
	for name := range m.Bases {
		if !onVolume(name) {
			bases++
		}
	}
	if found != bases {
		return fmt.Errorf("%w: checkpoint: its VM has %d disks of images, and this one has %d", vmerrors.ErrInvalid, bases, found)
	}
	return nil
}

// sameDisks returns an error if the guest wrote to other disks than those that the VM can write.
func (c *creator) sameDisks(r record.Container, m checkpoint.Manifest) error {
	files := c.written.Written(r)
	for _, d := range m.Disks {
		if files[d.Name] == "" {
			return fmt.Errorf("%w: checkpoint: the VM has no disk %q to write", vmerrors.ErrInvalid, d.Name)
		}
		if most := room(r, d.Name); d.Size > most {
			return fmt.Errorf("%w: checkpoint: disk %q: %d bytes are more than it can have: %d", vmerrors.ErrInvalid, d.Name, d.Size, most)
		}
	}
	if len(files) != len(m.Disks) {
		return fmt.Errorf("%w: checkpoint: it has %d disks that its guest can write, and the VM has %d", vmerrors.ErrInvalid, len(m.Disks), len(files))
	}
	return nil
}

// size returns the virtual size of a disk that the guest writes to a file of the container's.
func size(r record.Container, name string) (bytes int64, raw bool) {
	for _, d := range r.Spec.Disks {
		if d.Name != name {
			continue
		}
		if image := r.Disks[name].Image; image != nil {
			return image.VirtualSize, d.Mode == vmspec.ModeRaw
		}
		return d.Size, false
	}
	return 0, false
}

// cluster is the size of the clusters of new qcow2 files, in bytes.
const cluster = 64 << 10

// room returns how large a disk's file can be: qcow2 needs a little more than the disk has.
func room(r record.Container, name string) int64 {
	n, _ := size(r, name)
	return n + n/64 + 64<<20
}

// unpack puts the checkpoint's memory and disks into the container's folder, the disks in place of the
// new ones. It compares all checksums, so that the start reads only what was saved. As the conversions of images
// do, it waits for its namespace's turn, leaves to the node the disk space that stays free, and works in the VM's cgroup.
func (c *creator) unpack(ctx context.Context, n *draft, progress func(disk string, p expand.Progress)) (err error) {
	if n.from == nil {
		return nil
	}
	defer func() { err = errors.Join(err, n.from.release(ctx)) }()
	m, files := n.from.manifest, c.written.Written(n.rec)
	if err := m.CheckSizes(n.from.files); err != nil {
		return fmt.Errorf("checkpoint: %w", unusable(err))
	}
	end, err := c.expanded.Turns().Take(ctx, n.rec.Sandbox.Value.GetMetadata().GetNamespace(), func() {
		progress(checkpointProgress, expand.Progress{Waiting: true})
	})
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer end()
	if err := c.linkMemory(ctx, n); err != nil {
		return fmt.Errorf("checkpoint: memory: %w", unusable(err))
	}
	for _, d := range m.Disks {
		if err := c.unpackDisk(ctx, n, d, files[d.Name]); err != nil {
			return fmt.Errorf("checkpoint: disk %q: %w", d.Name, unusable(err))
		}
	}
	return nil
}

// checkpointProgress stands for the checkpoint among the disks of which calls hear.
const checkpointProgress = "checkpoint"

// linkMemory puts the checkpoint's memory, compressed, into the container's folder.
func (c *creator) linkMemory(ctx context.Context, n *draft) error {
	to := c.layout.MemoryFile(n.rec.ID)
	folder, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer folder.Close()
	ctx, release, err := c.expanded.Reserve(ctx, folder, n.from.manifest.Memory.Stored)
	if err != nil {
		return err
	}
	defer release()
	return c.forks.Link(ctx, n.from.files, n.from.manifest, to)
}

// join moves a process to the VM's cgroup, which it makes. Undoing the creation, or the removal of the container, removes it.
func (c *creator) join(r record.Container, pid int) error {
	if err := c.groups.Create(r); err != nil {
		return err
	}
	return c.groups.Add(r, pid)
}

// unpackDisk replaces the content of a disk's new file, whose owner and mode stay.
func (c *creator) unpackDisk(ctx context.Context, n *draft, d checkpoint.Disk, path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	ctx, release, err := c.expanded.Reserve(ctx, f, d.Size)
	if err != nil {
		return err
	}
	defer release()
	if err := c.checkpoints.Disk(ctx, n.rec.Domain.UID, n.from.files, d, n.from.manifest.Extra(d.Name), f, func(pid int) error { return c.join(n.rec, pid) }); err != nil {
		return err
	}
	want, raw := size(n.rec, d.Name)
	got := d.Size
	if !raw {
		// QEMU reads zeros behind the end of a file that ends within a cluster.
		whole := (d.Size + cluster - 1) / cluster * cluster
		if err := f.Truncate(whole); err != nil {
			return err
		}
		if got, err = imageunpack.CheckOverlay(f, whole, room(n.rec, d.Name)); err != nil {
			return fmt.Errorf("%w: %w", checkpoint.ErrUnusable, err)
		}
	}
	if got != want {
		return fmt.Errorf("%w: the guest saw a disk of %d bytes, and this one has %d", checkpoint.ErrUnusable, got, want)
	}
	return nil
}
