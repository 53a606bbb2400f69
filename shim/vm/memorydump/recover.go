package memorydump

import (
	"context"
	"errors"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// errInterrupted is why a dump failed that an earlier shim process began.
var errInterrupted = errors.New("the shim restarted before the end of the dump; request it again")

// Recover ends the dumps that an earlier shim process began: nothing reads their pipes any more.
// It does not wait for volumes.
func (d *Dumps) Recover() {
	for _, v := range d.o.Table.All("") {
		r := v.Record()
		if r.State != record.Running || !r.Dumping() {
			continue
		}
		log := table.Logger(d.o.Logger, r)
		if err := d.o.Domains.Clear(d.o.Layout.DumpPipe(r.ID)); err != nil {
			log.Warn("the pipe of a memory dump stays", "error", err)
		}
		d.o.Tasks.Run(func(ctx context.Context) {
			d.end(context.WithoutCancel(ctx), v, *r.MemoryDump, errInterrupted)
		})
	}
}
