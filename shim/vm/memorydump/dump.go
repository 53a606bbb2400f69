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

// begin begins a dump, which goes on beside the order. What fails is the result of the dump, in
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
	}
	m := record.MemoryDump{State: record.DumpWriting, Volume: a.Volume, Folder: folder, File: a.File, Start: time.Now().UTC()}
	if err := d.put(v, m); err != nil {
		return err
	}
	file, err := d.o.Files.Create(folder, a.File)
	if err != nil {
		return d.end(v, m, err)
	}
	to := domain.Dump{Pipe: d.o.Layout.DumpPipe(r.ID), Limit: 2*max(r.Spec.Memory, r.Spec.MaxMemory) + slack, Stall: stall}
	d.o.Tasks.Run(func(ctx context.Context) { d.write(ctx, v, m, to, file) })
	return nil
}

// write writes a dump, and records how it ended.
func (d *Dumps) write(ctx context.Context, v *table.VM, m record.MemoryDump, to domain.Dump, file *os.File) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.o.Tasks.Run(func(context.Context) {
		select {
		case <-v.Exited():
			cancel()
		case <-ctx.Done():
		}
	})
	failed := d.o.Domains.Write(ctx, v.Record().Domain.UUID, to, file)
	locked, cancelLock := background.AtMost(context.WithoutCancel(ctx), endTime)
	defer cancelLock()
	unlock, err := v.Lock(locked)
	if err == nil {
		defer unlock()
		err = d.end(v, m, failed)
	}
	if err != nil && !errors.Is(err, vmerrors.ErrNotFound) {
		table.Logger(d.o.Logger, v.Record()).Warn("recording the end of a memory dump failed", "volume", m.Volume, "error", err)
	}
}

// put records a dump, and reports whether the VM can move.
func (d *Dumps) put(v *table.VM, m record.MemoryDump) error {
	if err := d.o.Table.Put(v, v.Record().WithMemoryDump(m)); err != nil {
		return err
	}
	d.o.Conditions.Update(v)
	return nil
}

// end records the end of a dump, and removes a file that is incomplete. The caller has the VM's
// turn. A VM that has ended has no dump.
func (d *Dumps) end(v *table.VM, m record.MemoryDump, failed error) error {
	m.State, m.End = record.DumpCompleted, time.Now().UTC()
	log := table.Logger(d.o.Logger, v.Record()).With("volume", m.Volume, "file", m.File)
	if failed != nil {
		m.State, m.Message = record.DumpFailed, strings.ToValidUTF8(fields.Clip(failed.Error(), maxMessage), "?")
		if err := d.o.Files.Remove(m.Folder, m.File); err != nil {
			log.Warn("a failed memory dump stays in its volume", "error", err)
		}
	}
	log.Info("a dump of the guest's memory has ended", "state", m.State, "message", m.Message)
	if r := v.Record(); r.State != record.Running || !r.Dumping() {
		return nil
	}
	return d.put(v, m)
}
