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
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
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
