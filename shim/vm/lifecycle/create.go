package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/domain/accel"
	"github.com/nodevirt/nodevirt/shim/forks"
	"github.com/nodevirt/nodevirt/shim/hooks"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmfile"
	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/tracing"
)

// creator makes VM containers.
type creator struct {
	table       *table.Table
	images      Images
	store       ImageStore
	disks       DiskMaker
	written     diskFiles
	expanded    Expanded
	checkpoints Checkpoints
	moves       Moves
	files       *vmfile.Files
	conditions  Conditions
	events      Publisher
	tasks       *background.Tasks
	metrics     *metrics.Metrics
	tracing     *tracing.Tracing
	layout      layout.Layout
	groups      Groups
	forks       *forks.Store
	hooks       Hooks
	log         *slog.Logger

	ends        *ends
	pending     *pending
	describer   Describer
	mode        vmspec.Mode
	firmware    []string
	hostDevices hostdevice.Node
	timeout     time.Duration
	runFolders  func() error
}

func newCreator(o Options, e *ends, p *pending) *creator {
	return &creator{
		table: o.Table, images: o.Images, store: o.ImageStore, disks: o.DiskMaker, written: o.DiskAttacher, expanded: o.Expanded, checkpoints: o.Checkpoints, moves: o.Moves, files: o.Files, conditions: o.Conditions,
		events: o.Events, tasks: o.Tasks, metrics: o.Metrics, tracing: o.Tracing, layout: o.Layout, groups: o.Groups, forks: o.Forks, hooks: o.Hooks, log: o.Logger,
		ends: e, pending: p, describer: o.Describer, mode: o.DiskMode, firmware: o.Firmware, hostDevices: o.HostDevices, timeout: o.CreateTimeout, runFolders: o.RunFolders,
	}
}

// create makes a container. Archive is the path of the checkpoint from which its guest goes on; empty
// unless the call names one.
func (c *creator) create(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, archive string) (id string, err error) {
	sandbox, ok := c.table.Sandbox(sandboxID)
	if !ok {
		return "", fmt.Errorf("sandbox %q: %w", sandboxID, vmerrors.ErrNotVM)
	}
	ctx, end := c.tracing.Start(ctx, tracedCall("CreateContainer", sandbox, config, ""))
	defer func() { endCreate(ctx, end, id, err) }()
	defer func() {
		if err != nil {
			c.conditions.RefuseContainer(sandbox, err)
		}
	}()
	if err := c.table.Refusals.Of(sandboxID); err != nil {
		return "", err
	}
	if config.GetMetadata() == nil { // without it, the next shim could not read the record
		return "", fmt.Errorf("container of sandbox %q: %w: its config has no metadata", sandboxID, vmerrors.ErrInvalid)
	}
	annotations := sandbox.Config.Value.GetAnnotations()
	if named := vmspec.VMContainer(annotations); named != "" && named != config.GetMetadata().GetName() {
		return "", fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), vmerrors.ErrNotVM)
	}
	earlier, err := c.earlier(ctx, sandbox, config)
	if err != nil {
		return "", err
	}
	if earlier != nil {
		return earlier.await(ctx, config)
	}
	if err := c.runFolders(); err != nil { // what needs the folder reports it
		c.log.Warn("making lost run folders again failed", "error", err)
	}
	n, err := c.prepare(ctx, sandbox, config, archive)
	if err != nil {
		return "", err
	}
	if c.disks.TakeTime(n.rec) || n.from != nil {
		return c.begin(ctx, n).await(ctx, config)
	}
	defer n.unlock()
	err = c.makeFiles(ctx, n, func(string, expand.Progress) {})
	if err == nil {
		err = c.finish(n, config)
	}
	if err != nil {
		return "", errors.Join(err, unwind(ctx, n.undo))
	}
	return n.rec.ID, nil
}

// draft is a container that is being made. The goroutine that has it also has the
// VM's turn.
type draft struct {
	vm     *table.VM
	rec    record.Container
	asked  vmspec.Unresolved // the request, before the disks' content was known
	own    *imageunpack.Disk // the container's image, nil if the VM uses nothing of it
	from   *resumption       // the checkpoint; nil for a guest that boots
	files  record.Phase      // the making of the files
	undo   []func(context.Context) error
	unlock func()
}

// prepare finds the container's disk, and enters the container into the table and
// the records, as creating.
func (c *creator) prepare(ctx context.Context, sandbox record.Sandbox, config *runtimeapi.ContainerConfig, archive string) (_ *draft, err error) {
	n := &draft{rec: newRecord(sandbox, config)}
	n.rec.LogPath = logPath(c.layout, n.rec)
	n.vm = table.NewVM(n.rec)
	// The turn is taken before other goroutines can find the VM, and held until
	// what failed is undone: a removal that comes meanwhile has to wait.
	if n.unlock, err = n.vm.Lock(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unwind(ctx, n.undo))
			n.unlock()
		}
	}()
	if err = c.hold(ctx, n, config, archive); err != nil {
		return nil, err
	}
	name := config.GetMetadata().GetName()
	accelerator, err := c.accelerator(n)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w: %w", name, vmerrors.ErrInvalid, err)
	}
	if efi := n.rec.Spec.Firmware.UEFI; efi != nil {
		found, err := uefi.Find(c.firmware, wantedFirmware(n.rec.Spec))
		if err != nil {
			return nil, fmt.Errorf("container %q: %s: spec.domain.firmware.bootloader.efi: %w", name, vmspec.AnnotationVMI, err)
		}
		n.rec.Firmware = &found
	}
	if n.rec.HostDevices, err = c.hostDevices.Find(n.rec.SandboxID, n.rec.Spec.HostDevices, config); err != nil {
		return nil, fmt.Errorf("container %q: %w: %s: %w", name, vmerrors.ErrInvalid, vmspec.AnnotationVMI, err)
	}
	if err := c.accept(ctx, n, accelerator); err != nil {
		return nil, fmt.Errorf("container %q: %w", name, err)
	}
	if err := c.ends.supersede(ctx, n.rec); err != nil {
		return nil, fmt.Errorf("container %q: %w", name, err)
	}
	n.vm.Publish(n.rec)
	if err := c.table.Reserve(n.vm); err != nil {
		return nil, err
	}
	n.rec = n.vm.Record()
	if gid, needed := accel.DeviceGroup(); needed && accelerator == domain.KVM {
		n.rec.Domain.GID = gid
	}
	n.undo = append(n.undo, func(ctx context.Context) error {
		return errors.Join(c.groups.Remove(n.rec), c.disks.Remove(ctx, n.rec), c.table.Drop(n.vm))
	})
	if err := c.table.Put(n.vm, n.rec); err != nil {
		return nil, fmt.Errorf("container %q: %w", name, err)
	}
	return n, nil
}

// kernelOwner, behind a container's id, holds the image of its kernel while its files are made. No disk's name has a dot.
const kernelOwner = ".boot.kernel"

// ownFiles makes the VM's files beside its disks. An image that the container mounts for its kernel is held for that
// long.
func (c *creator) ownFiles(ctx context.Context, n *draft) (err error) {
	image := n.own
	if mounted := n.asked.KernelImage(); mounted != "" {
		owner := n.rec.ID + kernelOwner
		held, err := c.images.AcquireImage(ctx, owner, mounted)
		if err != nil {
			return fmt.Errorf("hold the kernel's image: %w", err)
		}
		defer func() { err = errors.Join(err, c.images.Release(context.WithoutCancel(ctx), owner)) }()
		image = &held
	}
	return c.files.Create(ctx, n.rec, image)
}

// wantedFirmware returns what a VM with UEFI requires of it, by the features of QEMU's descriptors.
func wantedFirmware(s vmspec.Spec) uefi.Wanted {
	w := uefi.Wanted{Architecture: s.Arch(), Machine: s.Machine, Secure: s.Firmware.UEFI.SecureBoot}
	if s.LaunchSecurity == nil {
		return w
	}
	switch s.LaunchSecurity.Encryption {
	case vmspec.EncryptionSEV:
		w.Feature = "amd-sev"
		if s.LaunchSecurity.EncryptedState {
			w.Feature = "amd-sev-es"
		}
	case vmspec.EncryptionSNP:
		w.Feature, w.Stateless = "amd-sev-snp", true
	case vmspec.EncryptionTDX:
		w.Feature, w.Stateless = "intel-tdx", true
	}
	return w
}

// accelerator returns what the guest runs on. It refuses guests of an architecture that the node does not
// run, and disks for another one.
func (c *creator) accelerator(n *draft) (domain.Accelerator, error) {
	arch := n.rec.Spec.Arch()
	emulator, accelerator := c.describer.emulator(arch)
	if emulator == "" {
		return "", fmt.Errorf("%s: spec.architecture: this node runs no guests of %s; install QEMU for it, or have vm.foreign_emulators name it",
			vmspec.AnnotationVMI, arch)
	}
	for _, d := range n.rec.Disks {
		if d.Image != nil {
			if err := d.Image.CheckGuest(arch); err != nil {
				return "", err
			}
		}
	}
	return accelerator, nil
}

// makeFiles makes the disks and what else the start opens. It calls progress with
// the state of each disk that takes time.
func (c *creator) makeFiles(ctx context.Context, n *draft, progress func(disk string, p expand.Progress)) (err error) {
	ctx, ended := beginPhase(ctx, record.PhaseFiles)
	defer func() { n.files = ended(err) }()
	// A kubelet tries a creation again, but no start of a container that is not restarted.
	err = c.hooks.Await(ctx, n.rec)
	if err == nil {
		err = c.disks.Create(ctx, n.rec, progress)
	}
	if err == nil {
		err = c.ownFiles(ctx, n)
	}
	if err == nil {
		err = c.unpack(ctx, n, progress)
	}
	if errors.Is(err, disk.ErrVolume) || errors.Is(err, vmfile.ErrInvalid) || errors.Is(err, hooks.ErrOff) {
		err = fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	if err != nil {
		return fmt.Errorf("container %q: %w", n.rec.Config.Value.GetMetadata().GetName(), err)
	}
	return nil
}

// finish records the container as created, with the config of the call that gets
// the answer.
func (c *creator) finish(n *draft, config *runtimeapi.ContainerConfig) error {
	r := n.rec
	r.Config.Value = config
	r.LogPath = logPath(c.layout, r)
	r.State, r.Timeline = record.Created, append(slices.Clone(r.Timeline), n.files)
	if err := c.table.Put(n.vm, r); err != nil {
		return err
	}
	table.Logger(c.log, r).Info("VM container created", "image", r.Image.ID, "disks", len(r.Spec.Disks), "memory", r.Spec.Memory)
	c.events.Publish(r, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return nil
}

// unfinished returns the container that is made in a sandbox, nil if there is none.
func (c *creator) unfinished(sandboxID string) *vminfo.Making { return c.pending.in(sandboxID) }
