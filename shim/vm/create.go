package vm

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/domain/accel"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmfile"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Create makes a VM container in a VM's sandbox, whose id is whole, and returns
// the container's id. ErrNotVM says that the image, or the pod's annotation,
// makes it an ordinary container, which is containerd's. ErrUnfinished says that
// the work goes on: the same call again finds it.
func (m *Manager) Create(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig) (_ string, err error) {
	m.mu.RLock()
	sandbox, ok := m.sandboxes[sandboxID]
	m.mu.RUnlock()
	if !ok {
		return "", fmt.Errorf("sandbox %q: %w", sandboxID, ErrNotVM)
	}
	pod := sandbox.Config.Value
	defer func() {
		if err != nil {
			m.tellRefused(sandboxID, pod, err)
		}
	}()
	if named := vmspec.VMContainer(pod.GetAnnotations()); named != "" && named != config.GetMetadata().GetName() {
		return "", fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), ErrNotVM)
	}
	k, err := m.begun(ctx, sandbox, config)
	if err != nil {
		return "", err
	}
	if k != nil {
		return k.await(ctx, config)
	}
	n, err := m.prepare(ctx, sandbox, config)
	if err != nil {
		return "", err
	}
	if m.Disks.TakeTime(n.rec) {
		return m.begin(n).await(ctx, config) //nolint:contextcheck // it may outlive the call
	}
	defer n.unlock()
	err = n.makeFiles(ctx, func(string, expand.Progress) {})
	if err == nil {
		err = n.finish(config)
	}
	if err != nil {
		return "", errors.Join(err, unwind(ctx, n.undo))
	}
	return n.rec.ID, nil
}

// creation is a container that is being made. Whoever has it has its machine's turn.
type creation struct {
	*Manager
	c      *machine
	rec    record.Container
	asked  vmspec.Unresolved // what the call asks for, before the disks' content was known
	own    *imageunpack.Disk // the container's image, nil if the VM uses nothing of it
	undo   []func(context.Context) error
	unlock func()
}

// prepare finds the container's disk, and enters the container into the tables and
// the records, as creating.
func (m *Manager) prepare(ctx context.Context, sandbox record.Sandbox, config *runtimeapi.ContainerConfig) (_ *creation, err error) {
	n := &creation{Manager: m, rec: newRecord(sandbox, config)}
	n.rec.LogPath = m.logPath(n.rec)
	n.c = newMachine(n.rec)
	// Taken before anybody can find the machine, and kept until what failed is
	// taken back: a removal that comes meanwhile has to wait.
	if n.unlock, err = n.c.lock(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unwind(ctx, n.undo))
			n.unlock()
		}
	}()
	name := config.GetMetadata().GetName()
	if n.asked, n.own, err = m.acquire(ctx, n.rec.ID, sandbox.Config.Value, config); err != nil {
		return nil, err
	}
	n.undo = append(n.undo, func(ctx context.Context) error { m.giveBack(ctx, n.rec.ID, n.asked.Disks()); return nil })
	if n.rec.Image, err = m.imageOf(ctx, config.GetImage().GetImage(), n.own); err != nil {
		return nil, err
	}
	if err = m.acquireDisks(ctx, n); err != nil {
		return nil, fmt.Errorf("container %q: %w", name, err)
	}
	if err := m.supersede(ctx, n.rec); err != nil {
		return nil, fmt.Errorf("container %q: %w", name, err)
	}
	n.c.rec.Store(&n.rec)
	if err := m.reserve(n.c); err != nil {
		return nil, err
	}
	n.rec = n.c.record()
	n.undo = append(n.undo, func(context.Context) error { m.forget(n.c); return nil })
	if gid, needed := accel.DeviceGroup(); needed && m.Accelerator == domain.KVM {
		n.rec.Domain.GID = gid
	}
	n.undo = append(n.undo, func(ctx context.Context) error {
		return errors.Join(m.Disks.Remove(ctx, n.rec), m.Records.RemoveContainer(n.rec.ID))
	})
	if err := m.put(n.c, n.rec); err != nil {
		return nil, fmt.Errorf("container %q: %w", name, err)
	}
	return n, nil
}

// makeFiles makes the disks and what else the machine's start opens. Tell is told
// how far a disk is of which that takes time.
func (n *creation) makeFiles(ctx context.Context, tell func(disk string, p expand.Progress)) error {
	err := n.Disks.Create(ctx, n.rec, tell)
	if err == nil {
		err = n.files().Create(ctx, n.rec, n.own)
	}
	if errors.Is(err, disk.ErrVolume) || errors.Is(err, vmfile.ErrInvalid) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return fmt.Errorf("container %q: %w", n.rec.Config.Value.GetMetadata().GetName(), err)
	}
	return nil
}

// finish has the container created, as the call asks for it that is answered.
func (n *creation) finish(config *runtimeapi.ContainerConfig) error {
	r := n.rec
	r.Config.Value = config
	r.LogPath = n.logPath(r)
	r.State = record.Created
	if err := n.put(n.c, r); err != nil {
		return err
	}
	n.log(r).Info("VM container created", "image", r.Image.ID, "disks", len(r.Spec.Disks), "memory", r.Spec.Memory)
	n.publish(r, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return nil
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

// acquire translates the request, and holds what the VM uses of the container's
// image: a disk, other files, or nothing. A container that the pod's annotation does
// not name is a VM only if its image has a disk, and is not an invalid one without.
func (m *Manager) acquire(
	ctx context.Context, id string, pod *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig,
) (vmspec.Unresolved, *imageunpack.Disk, error) {
	asked, specErr := vmspec.FromCRI(pod, config)
	if specErr != nil {
		specErr = fmt.Errorf("pod %s/%s: %w: %w",
			pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), ErrInvalid, specErr)
	}
	named := vmspec.VMContainer(pod.GetAnnotations()) != ""
	path, disk := asked.ImageDisk()
	if named && (specErr != nil || !disk && !asked.ImageFiles()) {
		return asked, nil, specErr
	}
	begun := time.Now()
	own, err := m.acquireOwn(ctx, id, config.GetImage().GetImage(), path, disk || !named)
	m.Metrics.Acquired(time.Since(begun), err)
	what := subject(config)
	switch {
	case errors.Is(err, imageunpack.ErrNoDisk) && !named:
		return asked, nil, fmt.Errorf("%s: %w: %w", what, ErrNotVM, err)
	case errors.Is(err, imageunpack.ErrNoDisk):
		return asked, nil, fmt.Errorf("%s: %w: %w: annotation %s says that it is a VM's: "+
			"build the image with a disk there, or change the annotation",
			what, ErrInvalid, err, vmspec.AnnotationVMContainer)
	case errors.Is(err, imageunpack.ErrUnusable):
		return asked, nil, fmt.Errorf("%s: %w: %w", what, ErrInvalid, err)
	case err != nil:
		m.giveBack(ctx, id, asked.Disks()) // what it could not undo, as containerd went away
		return asked, nil, fmt.Errorf("%s: %w", what, err)
	case specErr != nil:
		m.giveBack(ctx, id, asked.Disks())
	}
	return asked, &own, specErr
}

func (m *Manager) acquireOwn(ctx context.Context, id, image, path string, disk bool) (imageunpack.Disk, error) {
	if disk {
		return m.Unpacker.Acquire(ctx, id, image, path)
	}
	return m.Unpacker.AcquireImage(ctx, id, image)
}

// subject is the container of an error about its image: the kubelet says the image by its id, and
// beside it as the pod's author did, who knows it by that.
func subject(config *runtimeapi.ContainerConfig) string {
	text := fmt.Sprintf("container %q", config.GetMetadata().GetName())
	if said := config.GetImage().GetUserSpecifiedImage(); said != "" && said != config.GetImage().GetImage() {
		text += fmt.Sprintf(" of image %q", said)
	}
	return text
}

// imageOf asks containerd for the names of the container's image. Own has the image's
// id, if it is held.
func (m *Manager) imageOf(ctx context.Context, name string, own *imageunpack.Disk) (record.Image, error) {
	if own != nil {
		name = own.ImageID
	}
	reply, err := m.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	if err != nil {
		return record.Image{}, fmt.Errorf("ask containerd for image %s: %w", name, err)
	}
	image := record.Image{ID: cmp.Or(reply.GetImage().GetId(), name)}
	if tags := reply.GetImage().GetRepoTags(); len(tags) > 0 {
		image.Tag = tags[0]
	}
	if digests := reply.GetImage().GetRepoDigests(); len(digests) > 0 {
		image.Ref = digests[0]
	}
	return image, nil
}

// files makes the VM's files beside its disks.
func (m *Manager) files() *vmfile.Files { return vmfile.New(m.Unpacker, m.Records.ContainerDir) }

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
