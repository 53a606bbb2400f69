package memorydump

import (
	"context"
	"errors"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// The reasons of dumps that fail without an error of a call.
var (
	errWrite       = errors.New("QEMU could not write the dump: the volume may be full, or it fails")
	errInterrupted = errors.New("the node's software restarted before QEMU began the dump; request it again")
)

// Recover follows the dumps that an earlier shim process began. It does not wait for libvirtd.
func (d *Dumps) Recover() {
	for _, v := range d.o.Table.All("") {
		if r := v.Record(); r.State == record.Running && r.Dumping() {
			d.follow(v)
		}
	}
}

// follow asks QEMU about a dump until it has ended.
func (d *Dumps) follow(v *table.VM) {
	d.o.Tasks.Retry(askPause, v.Exited(), func(ctx context.Context) bool {
		done, err := d.settle(ctx, v)
		if err != nil {
			table.Logger(d.o.Logger, v.Record()).Warn("asking QEMU about a memory dump failed, retrying", "error", err)
		}
		return done
	})
}

// settle makes the record of a dump what QEMU says, and reports whether the dump has ended.
func (d *Dumps) settle(ctx context.Context, v *table.VM) (done bool, err error) {
	ctx, cancel := background.AtMost(ctx, patience)
	defer cancel()
	unlock, err := v.Lock(ctx)
	if err != nil {
		return errors.Is(err, vmerrors.ErrNotFound), nil
	}
	defer unlock()
	r := v.Record()
	if r.State != record.Running || !r.Dumping() {
		return true, nil // the end of the VM is the end of its dump
	}
	status, err := d.o.Domains.Status(ctx, r.Domain.UUID)
	if err != nil {
		return false, err
	}
	m := *r.MemoryDump
	begun := m.State == record.DumpBegun
	switch {
	case status == domain.DumpActive && begun: // QEMU dumps to one file at a time
		m.State = record.DumpWriting
		return false, d.put(v, m)
	case status == domain.DumpActive:
		return false, nil
	case begun, status == domain.DumpNone: // QEMU speaks of a former dump
		err = d.end(v, m, errInterrupted)
	case status == domain.DumpFailed:
		err = d.end(v, m, errWrite)
	default:
		err = d.end(v, m, nil)
	}
	return err == nil, err
}
