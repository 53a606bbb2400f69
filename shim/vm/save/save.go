// Package save writes checkpoints of running VMs: their memory and what they wrote to their
// disks, as package checkpoint stores it. Package lifecycle starts VMs from checkpoints.
//
// The guest is paused while it is saved, for a bounded time, so that its disks are those of
// that moment. It goes on afterwards, also after an error and after a restart of the shim: the
// record says so before the guest pauses.
//
//	record ──▶ pause ──▶ memory ──▶ disks ──▶ resume ──▶ archive complete
//	                └─────────┴─────────┴──▶ resume, archive removed
//
// A VM whose guest could not go on elsewhere is refused: one with devices or folders of its
// node, or with a volume that outlives its pod. The guest goes on to write to such a volume,
// and its memory of that moment would not fit what is there later. An order of package order saves
// to a PVC, and holds the guest while its caller takes snapshots of the VM's PVCs, or ends it.
package save

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/move"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Domains saves domains; parts of [domain.Driver].
type Domains interface {
	Pause(ctx context.Context, uuid string) error
	Resume(ctx context.Context, uuid string) error
	Destroy(ctx context.Context, uuid string) error
	SaveMemory(ctx context.Context, uuid string, to *os.File) error
	State(ctx context.Context, uuid string) (domain.State, error)
	MigratableXML(ctx context.Context, uuid string) (string, error)
}

// Disks finds what guests write; [disk.Attachments].
type Disks interface {
	Written(r record.Container) map[string]string
}

// Images opens disks in images; [imageunpack.Unpacker].
type Images interface {
	Open(ctx context.Context, d imageunpack.Disk, name string) (*os.File, error)
}

// Moves are the migrations of VMs; package move's Moves.
type Moves interface {
	// Moving reports whether the VM's guest is moving between nodes.
	Moving(v *table.VM) bool
	// Guest returns what another node must have in common with this one.
	Guest(r record.Container) (order.Guest, error)
}

// Agents are the clients of guests' agents; package guest's Agents.
type Agents interface {
	// State returns what is known of a guest, and asks nothing.
	State(v *table.VM) agent.State
}

// Files are the archives in volumes; package disk's Archives.
type Files interface {
	Create(folder, name string) (*os.File, error)
	Rename(folder, from, to string) error
	Remove(folder, name string) error
}

// Options are the parts that Saves works with. All are needed.
type Options struct {
	Table   *table.Table
	Tasks   *background.Tasks
	Domains Domains
	Disks   Disks
	Images  Images
	Moves   Moves
	Agents  Agents
	Files   Files
	Pods    attachment.Pods
	// Describe returns a VM's domain.
	Describe    func(r record.Container) domain.Description
	Accelerator domain.Accelerator
	Logger      *slog.Logger
}

// Saves writes checkpoints of a node's VMs.
type Saves struct {
	o    Options
	jobs table.PerVM[*job]
	// volumes has the accesses to the volume of a VM's save, and removals those that remove what is left
	// of one.
	volumes, removals table.PerVM[*background.Volume]
}

// New returns Saves.
func New(o Options) *Saves {
	s := &Saves{o: o}
	s.jobs.New = func(*table.VM) *job { return new(job) }
	newVolume := func(*table.VM) *background.Volume { return background.NewVolume() }
	s.volumes.New, s.removals.New = newVolume, newVolume
	return s
}

const (
	// pauseTime is how long a guest is paused at most, for a caller that does not say.
	pauseTime = 2 * time.Minute
	// patience bounds a call to libvirtd.
	patience = 30 * time.Second
	// partial ends the name of an archive that is not complete.
	partial = ".partial"
)

// retryPause is the time between two tries to resume a guest.
var retryPause = background.Pause{First: time.Second, Limit: 30 * time.Second}

// Checkpoint writes a checkpoint of a running VM to a new file at location, which only root can
// read. The guest is paused meanwhile, for limit at most, or two minutes if that is 0.
func (s *Saves) Checkpoint(ctx context.Context, id, location string, limit time.Duration) error {
	v, err := s.o.Table.Find(id)
	if err != nil {
		return err
	}
	if err := s.checkpoint(ctx, v, location, limit); err != nil {
		return fmt.Errorf("save VM container %q of pod %s: %w",
			v.Record().Config.Value.GetMetadata().GetName(), table.PodName(v.Record()), err)
	}
	return nil
}

func (s *Saves) checkpoint(ctx context.Context, v *table.VM, location string, limit time.Duration) (err error) {
	if !filepath.IsAbs(location) || filepath.Clean(location) != location {
		return fmt.Errorf("%w: location %q is not the absolute path of a file", vmerrors.ErrInvalid, location)
	}
	if err := check(v.Record(), nil); err != nil {
		return err
	}
	if info, err := os.Stat(filepath.Dir(location)); err != nil || !info.IsDir() {
		return fmt.Errorf("%w: location %s is in no folder of the node", vmerrors.ErrInvalid, location)
	}
	if _, err := os.Lstat(location); err == nil {
		return fmt.Errorf("%w: %s exists: name another file", vmerrors.ErrInvalid, location)
	}
	m, err := s.describe(ctx, v)
	if err != nil {
		return err
	}
	r, err := s.begin(ctx, v, record.Saving{Partial: location + partial}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end(ctx, v)) }()
	if s.o.Moves.Moving(v) {
		return fmt.Errorf("%w: the guest is moving to another node", vmerrors.ErrState)
	}
	f, err := os.OpenFile(r.Saving.Partial, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	w := checkpoint.NewWriter(f)
	begun := time.Now()
	if limit <= 0 {
		limit = pauseTime
	}
	if err := s.paused(ctx, r, limit, func(ctx context.Context) error { return s.content(ctx, r, w, &m) }); err != nil {
		return err
	}
	paused := time.Since(begun)
	if err := w.Close(m); err != nil {
		return err
	}
	if err := os.Rename(r.Saving.Partial, location); err != nil {
		return err
	}
	table.Logger(s.o.Logger, r).Info("VM saved", "location", location, "memory", m.Memory.Size, "stored", m.Memory.Stored, "paused", paused)
	return nil
}

// check returns why a VM cannot be saved now. Held are its disks as of [Fits].
func check(r record.Container, held []string) error {
	if r.State != record.Running || r.Incoming != "" {
		return fmt.Errorf("%w: the VM does not run", vmerrors.ErrState)
	}
	if r.Freeze != nil {
		return fmt.Errorf("%w: the guest's file systems are frozen, and nothing would thaw them elsewhere: thaw them first", vmerrors.ErrState)
	}
	return Fits(r, held)
}

// Fits returns why a VM has no checkpoints: what its guest would miss elsewhere, or later. Held are
// the disks on PVCs whose content is saved together with the memory.
func Fits(r record.Container, held []string) error {
	why := move.Bound(r)
	if r.Spec.Hooks != nil {
		why = append(why, "it has hook sidecars: those of its next pod could make another VM of it")
	}
	if len(r.Plugged) > 0 {
		why = append(why, "it has got disks since it runs, which checkpoints do not support")
	}
	if len(r.Cards) > 0 {
		why = append(why, "it has got network cards since it runs, which checkpoints do not support")
	}
	if r.Spec.State != nil {
		why = append(why, "it has persistent state, which its guest changes after the checkpoint")
	}
	if r.Spec.TakesPodAddress() {
		why = append(why, "its card on the pod network has the binding bridge: the next pod has another address; use masquerade")
	}
	for _, d := range r.Spec.Disks {
		transfer, reason := d.Transfer()
		switch {
		case reason != "":
			why = append(why, fmt.Sprintf("disk %q %s", d.Name, reason))
		case transfer == vmspec.TransferRemade, transfer == vmspec.TransferCopied && !d.OnVolume():
		case transfer == vmspec.TransferShared && d.Source != vmspec.SourceHostDisk && slices.Contains(held, d.Name):
		default:
			why = append(why, fmt.Sprintf("disk %q is on a volume, whose content can change after the checkpoint", d.Name))
		}
	}
	if len(why) > 0 {
		return fmt.Errorf("%w: a VM like this one cannot be resumed from a checkpoint: %s", vmerrors.ErrInvalid, strings.Join(why, "; "))
	}
	return nil
}

// begin records that the VM is being saved, if nothing else keeps it busy.
func (s *Saves) begin(ctx context.Context, v *table.VM, as record.Saving, held []string) (record.Container, error) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return record.Container{}, err
	}
	defer unlock()
	r := v.Record()
	if err := check(r, held); err != nil {
		return r, err
	}
	if r.Saving != nil {
		return r, fmt.Errorf("%w: it is being saved already", vmerrors.ErrState)
	}
	within, cancel := background.AtMost(ctx, patience)
	defer cancel()
	state, err := s.o.Domains.State(within, r.Domain.UUID)
	if err != nil {
		return r, err
	}
	if state.Status != domain.StatusRunning {
		return r, fmt.Errorf("%w: the guest is %s: it must run to be saved", vmerrors.ErrState, state.Status)
	}
	r.Saving = &as
	return r, s.o.Table.Put(v, r)
}

// paused pauses the guest while do works, and resumes it unless it is suspended.
func (s *Saves) paused(ctx context.Context, r record.Container, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the guest may be paused for %s only", limit))
	defer cancel()
	err := s.o.Domains.Pause(ctx, r.Domain.UUID)
	if err == nil {
		err = do(ctx)
	}
	if err != nil || r.Saving.Suspend {
		return err // the end resumes the guest, or ends it
	}
	return s.resume(context.WithoutCancel(ctx), r)
}

// resume resumes the guest.
func (s *Saves) resume(ctx context.Context, r record.Container) error {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	err := s.o.Domains.Resume(ctx, r.Domain.UUID)
	if errors.Is(err, domain.ErrNotRunning) || errors.Is(err, domain.ErrNotFound) {
		return nil // the guest has ended
	}
	return err
}

// end undoes what begin recorded: the guest goes on, and no part of an archive stays. If libvirtd
// does not answer, end goes on in the background.
func (s *Saves) end(ctx context.Context, v *table.VM) error {
	err := s.undo(context.WithoutCancel(ctx), v)
	if err != nil {
		s.retry(v)
	}
	return err
}

// undo lets the guest go on before it removes the archive, which a volume that does not answer delays.
func (s *Saves) undo(ctx context.Context, v *table.VM) error {
	ctx, cancel := background.AtMost(ctx, 2*patience)
	defer cancel()
	log := table.Logger(s.o.Logger, v.Record())
	as, err := s.letGo(ctx, v)
	gone := errors.Is(err, vmerrors.ErrNotFound)
	if gone {
		as, err = v.Record().Saving, nil
	}
	if err != nil || as == nil || as.Complete {
		return err
	}
	if err := s.discard(ctx, v, *as); err != nil {
		// An archive that can't have its name yet is of no use, and the next one takes its place.
		if !gone && (as.Renaming || !errors.Is(err, background.ErrVolume)) {
			return err
		}
		log.Warn("an unfinished archive stays", "folder", as.Folder, "file", as.Partial, "error", err)
	}
	if gone {
		return nil
	}
	return s.forget(ctx, v, *as)
}

// letGo lets the guest of a save go on, or ends the guest whose memory is saved. It returns what the
// record says of the save, or nil.
func (s *Saves) letGo(ctx context.Context, v *table.VM) (*record.Saving, error) {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r := v.Record()
	switch {
	case r.Saving == nil || r.State != record.Running:
	case r.Saving.Complete:
		return r.Saving, s.finish(ctx, r)
	default:
		if err := s.resume(ctx, r); err != nil {
			return nil, fmt.Errorf("resume the guest: %w", err)
		}
	}
	return r.Saving, nil
}

// discard removes an unfinished archive. The caller does not have the VM's turn: the volume may not
// answer. An access that hangs may still have the archive open.
func (s *Saves) discard(ctx context.Context, v *table.VM, as record.Saving) error {
	return within(ctx, removeTime, s.removals.Of(v), func() error {
		if as.Folder != "" {
			err := s.o.Files.Remove(as.Folder, as.Partial)
			if as.Suspend {
				err = errors.Join(err, s.o.Files.Remove(as.Folder, vmspec.CheckpointFile))
			}
			return err
		}
		if err := os.Remove(as.Partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// forget removes a save from the record.
func (s *Saves) forget(ctx context.Context, v *table.VM, as record.Saving) error {
	unlock, err := v.Lock(ctx)
	if errors.Is(err, vmerrors.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	if r.Saving == nil || *r.Saving != as {
		return nil
	}
	r.Saving = nil
	return s.o.Table.Put(v, r)
}

// retry goes on with undo in the background.
func (s *Saves) retry(v *table.VM) {
	s.o.Tasks.Retry(retryPause, nil, func(ctx context.Context) bool {
		err := s.undo(ctx, v)
		if err != nil {
			table.Logger(s.o.Logger, v.Record()).Warn("the end of saving a VM failed, retrying", "error", err)
		}
		return err == nil
	})
}

// Recover ends what an earlier shim process has begun. Call it once the table has the VMs. It does
// not wait.
func (s *Saves) Recover() {
	for _, v := range s.o.Table.All("") {
		if v.Record().Saving != nil {
			s.retry(v)
		}
	}
}
