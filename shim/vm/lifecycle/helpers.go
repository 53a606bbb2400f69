package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// helper is a program that a VM needs as long as it runs. QEMU does not connect to another
// one, which would not know the state that the guest has in the first.
type helper struct {
	name  string
	used  func(r record.Container) bool
	watch func(ctx context.Context, id string) error
	// ended handles the end of the helper of a VM that runs.
	ended func(ctx context.Context, v *table.VM, log *slog.Logger)
}

// helperKeeper watches the helpers of running VMs.
type helperKeeper struct {
	helpers   []helper
	processes Processes
	tasks     *background.Tasks
	log       *slog.Logger
}

func newHelperKeeper(o Options, e *ends) *helperKeeper {
	return &helperKeeper{processes: o.Processes, tasks: o.Tasks, log: o.Logger, helpers: []helper{
		{
			"a TPM", func(r record.Container) bool { return r.Spec.TPM }, o.TPMs.Watch,
			func(_ context.Context, v *table.VM, log *slog.Logger) { reportNoTPM(e, v, log) },
		},
		{"a file system", func(r record.Container) bool { return len(r.Spec.Filesystems) > 0 }, o.Filesystems.Watch, e.stopUnserved},
	}}
}

// endTime is how long QEMU may take to end after a helper that ends with it.
const endTime = 10 * time.Second

// keep handles the end of each helper of a VM that runs.
func (k *helperKeeper) keep(v *table.VM) {
	r := v.Record()
	for _, h := range k.helpers {
		if h.used(r) {
			k.tasks.Run(func(ctx context.Context) { k.keepOne(ctx, v, r, h) })
		}
	}
}

func (k *helperKeeper) keepOne(ctx context.Context, v *table.VM, r record.Container, h helper) {
	log := table.Logger(k.log, r)
	if err := h.watch(ctx, r.ID); ctx.Err() != nil {
		return
	} else if err != nil {
		log.Error("watching a helper process failed", "of", h.name, "error", err)
		return
	}
	limited, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	err := k.processes.AwaitEnd(limited, r.Domain.Name, r.Domain.PID)
	if err == nil || ctx.Err() != nil {
		return // the helper ended with QEMU
	}
	h.ended(ctx, v, log)
}

// reportNoTPM reports a guest whose TPM is gone. QEMU connects to no other swtpm, and the guest may
// not need its TPM now, so that it runs on.
func reportNoTPM(e *ends, v *table.VM, log *slog.Logger) {
	log.Error("swtpm ended: the guest has no TPM until the VM starts again, and its next reset ends it")
	e.of.Of(v).noTPM.Store(true)
	e.conditions.SetImpaired(v, "swtpm ended: the guest has no TPM, and a reset, such as a reboot, ends the VM; restart the VM")
}

// unservedGrace is how long a guest may take to shut down after a file system failed.
const unservedGrace = 30 * time.Second

// stopUnserved stops a guest whose file system does not answer any more: its programs would
// wait there without an end.
func (e *ends) stopUnserved(ctx context.Context, v *table.VM, log *slog.Logger) {
	log.Error("virtiofsd ended: the VM is stopped, since its guest would wait for the file system forever")
	e.of.Of(v).unserved.Store(true)
	if err := e.stop(ctx, v, unservedGrace); err != nil && ctx.Err() == nil {
		log.Error("stopping a VM without its file system failed", "error", err)
	}
}
