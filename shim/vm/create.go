package vm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/domain/accel"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Create makes a VM container in a VM's sandbox, whose id is whole, and returns
// the container's id. ErrNotVM says that the image, or the pod's annotation,
// makes it an ordinary container, which is containerd's.
func (m *Manager) Create(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig) (_ string, err error) {
	m.mu.RLock()
	sandbox, ok := m.sandboxes[sandboxID]
	m.mu.RUnlock()
	if !ok {
		return "", fmt.Errorf("sandbox %q: %w", sandboxID, ErrNotVM)
	}
	pod := sandbox.Config.Value
	if named := vmspec.VMContainer(pod.GetAnnotations()); named != "" && named != config.GetMetadata().GetName() {
		return "", fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), ErrNotVM)
	}
	r := newRecord(sandbox, config)
	r.LogPath = m.logPath(r)
	c := newMachine(r)
	// Taken before anybody can find the machine, and kept until what failed is
	// taken back: a removal that comes meanwhile has to wait.
	unlock, err := c.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	var own imageunpack.Disk
	if r.Spec, own, err = m.acquire(ctx, r.ID, pod, config); err != nil {
		return "", err
	}
	undo := []func(context.Context) error{func(ctx context.Context) error { m.giveBack(ctx, r.ID, r.Spec); return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, unwind(ctx, undo))
		}
	}()
	if r.Image, err = m.imageOf(ctx, own.ImageID); err != nil {
		return "", err
	}
	if r.Disks, err = m.Disks.Hold(ctx, r.ID, r.Spec, own); err != nil {
		return "", fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), err)
	}
	c.rec.Store(&r)
	if err := m.reserve(c); err != nil {
		return "", err
	}
	r = c.record()
	undo = append(undo, func(context.Context) error { m.forget(c); return nil })
	if gid, needed := accel.DeviceGroup(); needed && m.Accelerator == domain.KVM {
		r.Domain.GID = gid
	}
	undo = append(undo, func(ctx context.Context) error {
		return errors.Join(m.Disks.Remove(ctx, r), m.Records.RemoveContainer(r.ID))
	})
	if err := m.put(c, r); err != nil {
		return "", fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), err)
	}
	err = m.Disks.Create(ctx, r, func(string, expand.Progress) {})
	if err == nil {
		err = m.copyKernel(ctx, r, own)
	}
	if err != nil {
		return "", fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), err)
	}
	r.State = record.Created
	if err := m.put(c, r); err != nil {
		return "", err
	}
	m.log(r).Info("VM container created", "image", r.Image.ID, "disk", own.Path, "memory", r.Spec.Memory)
	m.publish(r, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return r.ID, nil
}

// newID is an id of containerd's form.
func newID() string {
	id := make([]byte, 32)
	rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// newRecord is a container that nothing has been done for yet.
func newRecord(sandbox record.Sandbox, config *runtimeapi.ContainerConfig) record.Container {
	r := record.Container{
		ID:        newID(),
		SandboxID: sandbox.ID,
		State:     record.Creating,
		CreatedAt: time.Now(),
		Sandbox:   sandbox.Config,
	}
	r.Config.Value = config
	pod := sandbox.Config.Value
	r.Domain = record.Domain{
		Name: domainName(pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), r.ID),
		UUID: uuid.NewString(),
	}
	return r
}

// logPath is where CRI wants the container's log; where it doesn't say, as with
// a hand-written config of crictl's, the log is in the container's folder.
func (m *Manager) logPath(r record.Container) string {
	dir, path := r.Sandbox.Value.GetLogDirectory(), r.Config.Value.GetLogPath()
	if dir == "" || path == "" {
		return m.path(r.ID, logFile)
	}
	return filepath.Join(dir, path)
}

// domainName is how virsh shows the machine: its pod, and enough of the
// container's id to tell it from one that was there before.
func domainName(namespace, name, id string) string {
	clean := func(s string) string {
		b := []byte(s)
		for i, c := range b {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' {
				b[i] = '-'
			}
		}
		return string(b[:min(len(b), 48)])
	}
	return clean(namespace) + "_" + clean(name) + "_" + id[:12]
}

// acquire translates the request and finds the disk. What is wrong with the
// request of an image without a disk is not of interest here.
func (m *Manager) acquire(ctx context.Context, id string, pod *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) (vmspec.Spec, imageunpack.Disk, error) {
	name := config.GetMetadata().GetName()
	spec, specErr := vmspec.FromCRI(pod, config)
	spec = spec.WithMode(m.DiskMode)
	begun := time.Now()
	disk, err := m.Unpacker.Acquire(ctx, id, config.GetImage().GetImage(), diskPath(spec))
	m.Metrics.Acquired(time.Since(begun), err)
	required := vmspec.VMContainer(pod.GetAnnotations()) != ""
	switch {
	case errors.Is(err, imageunpack.ErrNoDisk) && !required:
		return spec, disk, fmt.Errorf("container %q: %w: %w", name, ErrNotVM, err)
	case errors.Is(err, imageunpack.ErrNoDisk):
		return spec, disk, fmt.Errorf("container %q: %w: %w: annotation %s says that it is a VM's: "+
			"build the image with a disk there, or change the annotation",
			name, ErrInvalid, err, vmspec.AnnotationVMContainer)
	case errors.Is(err, imageunpack.ErrUnusable):
		return spec, disk, fmt.Errorf("container %q: %w: %w", name, ErrInvalid, err)
	case err != nil:
		m.giveBack(ctx, id, spec) // what it could not undo, as containerd went away
		return spec, disk, fmt.Errorf("container %q: %w", name, err)
	case specErr != nil:
		specErr = fmt.Errorf("pod %s/%s: %w: %w",
			pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), ErrInvalid, specErr)
		m.giveBack(ctx, id, spec)
		return spec, disk, specErr
	}
	return spec, disk, nil
}

// diskPath is which of the image's disks the spec asks for.
func diskPath(s vmspec.Spec) string {
	for _, d := range s.Disks {
		if d.Source == vmspec.SourceImage {
			return d.Path
		}
	}
	return ""
}

// imageOf asks containerd how it calls an image.
func (m *Manager) imageOf(ctx context.Context, id string) (record.Image, error) {
	reply, err := m.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: id}})
	if err != nil {
		return record.Image{}, fmt.Errorf("ask containerd for image %s: %w", id, err)
	}
	image := record.Image{ID: id}
	if tags := reply.GetImage().GetRepoTags(); len(tags) > 0 {
		image.Tag = tags[0]
	}
	if digests := reply.GetImage().GetRepoDigests(); len(digests) > 0 {
		image.Ref = digests[0]
	}
	return image, nil
}

// copyKernel puts the kernel of the container's image, where it boots one
// directly, into the container's folder.
func (m *Manager) copyKernel(ctx context.Context, r record.Container, own imageunpack.Disk) error {
	k := r.Spec.Firmware.Kernel
	if k == nil {
		return nil
	}
	for _, f := range []struct{ field, from, to string }{
		{"kernelPath", k.Path, kernelFile}, {"initrdPath", k.Initrd, initrdFile},
	} {
		if f.from == "" {
			continue
		}
		err := m.copyOut(ctx, r, own, f.from, m.path(r.ID, f.to))
		if errors.Is(err, imageunpack.ErrUnusable) {
			return fmt.Errorf("%w: %s: spec.domain.firmware.kernelBoot.container.%s: %w",
				ErrInvalid, vmspec.AnnotationVMI, f.field, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxKernel bounds what an image can make the shim copy.
const maxKernel = 1 << 30

// copyOut copies a file of the image for QEMU, which opens kernels by path.
func (m *Manager) copyOut(ctx context.Context, r record.Container, own imageunpack.Disk, from, to string) error {
	src, err := m.Unpacker.Open(ctx, own, from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	defer dst.Close()
	if n, err := io.Copy(dst, io.LimitReader(src, maxKernel+1)); err != nil {
		return fmt.Errorf("copy %s of image %s: %w", from, own.Image, err)
	} else if n > maxKernel {
		return fmt.Errorf("%w: %s of image %s is larger than 1 GiB: not a kernel or an initrd", ErrInvalid, from, own.Image)
	}
	if err := dst.Chown(int(r.Domain.UID), int(r.Domain.GID)); err != nil {
		return fmt.Errorf("give %s to the VM's user: %w", to, err)
	}
	return dst.Close()
}

// undoTime bounds the taking back of a failed call.
const undoTime = 20 * time.Second

// unwind runs the undos backwards, whatever became of ctx.
func unwind(ctx context.Context, undo []func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var errs []error
	for _, do := range slices.Backward(undo) {
		errs = append(errs, do(ctx))
	}
	return errors.Join(errs...)
}
