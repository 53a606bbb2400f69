package memorydump

import (
	"context"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/control"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Controls returns the names of the machine controls of memory dumps.
func Controls() []string { return []string{order.MemoryDump, order.MemoryDumpStatus} }

// Do carries out a machine control with its argument, and returns its answer.
func (d *Dumps) Do(ctx context.Context, v *table.VM, name, argument string) ([]byte, error) {
	switch name {
	case order.MemoryDump:
		return control.Answer(ctx, v, argument, d.dump)
	case order.MemoryDumpStatus:
		return control.Answer(ctx, v, argument, func(_ context.Context, v *table.VM, a order.Name) (order.Dump, error) {
			return about(v.Record(), a.Name), nil
		})
	}
	return nil, fmt.Errorf("%w: there is no control %q of memory dumps", vmerrors.ErrInvalid, name)
}

// fileName is a name of a dump. The file system bounds its length, too.
var fileName = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]{0,242}` + regexp.QuoteMeta(order.DumpSuffix) + `$`)

// checkNames refuses names that no volume and no dump can have.
func checkNames(a order.DumpFile) error {
	if len(validation.IsDNS1123Label(a.Volume)) > 0 {
		return fmt.Errorf("%w: %.80q is not the name of a volume", vmerrors.ErrInvalid, a.Volume)
	}
	if !fileName.MatchString(a.File) {
		return fmt.Errorf("%w: %.80q is not the name of a memory dump, which is a file's, and ends in %s", vmerrors.ErrInvalid, a.File, order.DumpSuffix)
	}
	return nil
}

// about returns what a record says of the dump to a volume.
func about(r record.Container, volume string) order.Dump {
	m := r.MemoryDump
	if m == nil || m.Volume != volume || r.State != record.Running {
		return order.Dump{Volume: volume, State: order.DumpNone}
	}
	return order.Dump{Volume: volume, State: order.DumpState(m.State), File: m.File, Start: m.Start, End: m.End, Message: m.Message}
}

// wait returns what is known of a dump when it has ended, or after a while.
func wait(ctx context.Context, v *table.VM, volume string) (order.Dump, error) {
	return control.Settled(ctx, v, func() (now order.Dump, settled bool) {
		now = about(v.Record(), volume)
		return now, now.State != order.DumpWriting
	}, order.Dump{Volume: volume, State: order.DumpNone})
}
