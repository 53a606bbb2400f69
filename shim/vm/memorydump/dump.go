package memorydump

import (
	"context"
	"errors"
	"fmt"
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

// begin has QEMU begin a dump. What fails is the result of the dump, in the record.
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
	case d.o.Moves.Moving(v):
		return fmt.Errorf("%w: the guest is moving to another node", vmerrors.ErrState)
	}
	m := record.MemoryDump{State: record.DumpBegun, Volume: a.Volume, Folder: folder, File: a.File, Start: time.Now().UTC()}
	if err := d.put(v, m); err != nil {
		return err
	}
	ctx, cancel := background.AtMost(context.WithoutCancel(ctx), patience)
	defer cancel()
	err = d.write(ctx, r.Domain.UUID, m)
	switch {
	case err == nil:
		m.State = record.DumpWriting
		err = d.put(v, m)
	case !errors.Is(err, domain.ErrUnavailable):
		return d.end(v, m, err)
	}
	if err != nil { // QEMU may have begun
		table.Logger(d.o.Logger, r).Warn("finding out about a memory dump", "volume", m.Volume, "error", err)
	}
	d.follow(v)
	return nil
}

// write creates the file of a dump, and passes it to QEMU.
func (d *Dumps) write(ctx context.Context, uuid string, m record.MemoryDump) error {
	file, err := d.o.Files.Create(m.Folder, m.File)
	if err != nil {
		return err
	}
	defer file.Close()
	return d.o.Domains.Start(ctx, uuid, file)
}

// put records a dump, and reports whether the VM can move.
func (d *Dumps) put(v *table.VM, m record.MemoryDump) error {
	if err := d.o.Table.Put(v, v.Record().WithMemoryDump(m)); err != nil {
		return err
	}
	d.o.Conditions.Update(v)
	return nil
}

// end records the end of a dump, and removes a file that is incomplete.
func (d *Dumps) end(v *table.VM, m record.MemoryDump, failed error) error {
	m.State, m.End = record.DumpCompleted, time.Now().UTC()
	log := table.Logger(d.o.Logger, v.Record()).With("volume", m.Volume, "file", m.File)
	if failed != nil {
		m.State, m.Message = record.DumpFailed, strings.ToValidUTF8(fields.Clip(failed.Error(), maxMessage), "?")
		if err := d.o.Files.Remove(m.Folder, m.File); err != nil {
			log.Warn("a failed memory dump stays in its volume", "error", err)
		}
	}
	if err := d.put(v, m); err != nil {
		return err
	}
	log.Info("a dump of the guest's memory has ended", "state", m.State, "message", m.Message)
	return nil
}
