package memorydump

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// dump begins a dump, and waits for its end for a while. An order for a dump that the record has
// does not begin another one.
func (d *Dumps) dump(ctx context.Context, v *table.VM, a order.DumpFile) (order.Dump, error) {
	if err := checkNames(a); err != nil {
		return order.Dump{}, err
	}
	if !has(v.Record(), a) {
		config, err := attachment.Find(ctx, d.o.Pods, v.Record(), a.Container)
		if err != nil {
			return order.Dump{}, err
		}
		folder, err := vmspec.Folder(a.Volume, config)
		if err != nil {
			return order.Dump{}, fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
		}
		if err := d.begin(ctx, v, a, folder); err != nil {
			return order.Dump{}, err
		}
	}
	return wait(ctx, v, a.Volume)
}

// has reports whether a record has the dump that an order is for.
func has(r record.Container, a order.DumpFile) bool {
	m := r.MemoryDump
	return m != nil && m.Volume == a.Volume && m.File == a.File
}

// begin records a dump, which goes on beside the order. What fails is the result of the dump, in
// the record.
func (d *Dumps) begin(ctx context.Context, v *table.VM, a order.DumpFile, folder string) error {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r := v.Record()
	switch {
	case r.State != record.Running || r.Incoming != "":
		return fmt.Errorf("%w: no guest runs in container %q", vmerrors.ErrState, r.ID)
	case has(r, a):
		return nil
	case r.Dumping():
		return fmt.Errorf("%w: the guest's memory is being dumped to volume %s", vmerrors.ErrState, r.MemoryDump.Volume)
	case r.BackingUp():
		return fmt.Errorf("%w: the VM's disks are being backed up", vmerrors.ErrState)
	case r.Saving != nil:
		return fmt.Errorf("%w: the guest is being saved", vmerrors.ErrState)
	case d.o.Moves.Moving(v):
		return fmt.Errorf("%w: the guest is moving to another node", vmerrors.ErrState)
	case d.volumes.Of(v).Busy():
		return fmt.Errorf("%w: an access of an earlier dump has not ended: %w", vmerrors.ErrState, background.ErrVolume)
	}
	m := record.MemoryDump{State: record.DumpWriting, Volume: a.Volume, Folder: folder, File: a.File, Start: time.Now().UTC()}
	if err := d.put(v, m); err != nil {
		return err
	}
	to := domain.Dump{Pipe: d.o.Layout.DumpPipe(r.ID), Limit: 2*max(r.Spec.Memory, r.Spec.MaxMemory) + slack, Stall: stall}
	d.o.Tasks.Run(func(ctx context.Context) { d.write(ctx, v, m, to) })
	return nil
}

// write writes a dump, and records how it ended.
func (d *Dumps) write(ctx context.Context, v *table.VM, m record.MemoryDump, to domain.Dump) {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	d.o.Tasks.Run(func(context.Context) {
		select {
		case <-v.Exited():
			cancel()
		case <-limited.Done():
		}
	})
	file, err := d.create(limited, v, m)
	if err == nil {
		err = d.o.Domains.Write(limited, v.Record().Domain.UUID, to, file)
	}
	d.end(context.WithoutCancel(ctx), v, m, err)
}

// create creates the file of a dump.
func (d *Dumps) create(ctx context.Context, v *table.VM, m record.MemoryDump) (*os.File, error) {
	ctx, cancel := background.AtMost(ctx, stall)
	defer cancel()
	var file *os.File
	volume := d.volumes.Of(v)
	err := volume.Do(ctx, func() (err error) {
		file, err = d.o.Files.Create(m.Folder, m.File)
		return err
	})
	if errors.Is(err, background.ErrVolume) {
		volume.Later(func() {
			if file != nil {
				_ = file.Close() // nothing was written
			}
		})
		return nil, err
	}
	return file, err
}

// put records a dump, and reports whether the VM can move.
func (d *Dumps) put(v *table.VM, m record.MemoryDump) error {
	if err := d.o.Table.Put(v, v.Record().WithMemoryDump(m)); err != nil {
		return err
	}
	d.o.Conditions.Update(v)
	return nil
}

// end removes a file that is incomplete, and records the end of the dump. A VM that has ended has no
// dump.
func (d *Dumps) end(ctx context.Context, v *table.VM, m record.MemoryDump, failed error) {
	m.State, m.End = record.DumpCompleted, time.Now().UTC()
	log := table.Logger(d.o.Logger, v.Record()).With("volume", m.Volume, "file", m.File)
	if failed != nil {
		m.State, m.Message = record.DumpFailed, strings.ToValidUTF8(fields.Clip(failed.Error(), maxMessage), "?")
		if err := d.remove(ctx, v, m); err != nil {
			log.Warn("a failed memory dump stays in its volume", "error", err)
		}
	}
	log.Info("a dump of the guest's memory has ended", "state", m.State, "message", m.Message)
	if err := d.record(ctx, v, m); err != nil && !errors.Is(err, vmerrors.ErrNotFound) {
		log.Warn("recording the end of a memory dump failed", "error", err)
	}
}

// remove removes the file of a dump that failed. The caller does not have the VM's turn: the volume
// may not answer.
func (d *Dumps) remove(ctx context.Context, v *table.VM, m record.MemoryDump) error {
	ctx, cancel := background.AtMost(ctx, removeTime)
	defer cancel()
	return d.volumes.Of(v).Do(ctx, func() error { return d.o.Files.Remove(m.Folder, m.File) })
}

// record records the end of a dump.
func (d *Dumps) record(ctx context.Context, v *table.VM, m record.MemoryDump) error {
	ctx, cancel := background.AtMost(ctx, endTime)
	defer cancel()
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if r := v.Record(); r.State != record.Running || !r.Dumping() {
		return nil
	}
	return d.put(v, m)
}
