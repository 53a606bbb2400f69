package vmtest

import (
	"context"
	"errors"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// Witness is a fake of [witness.Node]: it knows the QEMUs of a fake libvirtd, and those that libvirtd has
// forgotten.
type Witness struct {
	libvirt *Libvirt
	// Slow is set for a node whose QEMUs do not end by signals.
	Slow bool
}

// Processes implements witness's.
func (w *Witness) Processes() ([]witness.Process, error) {
	l := w.libvirt
	if err := l.script.note("Witness.Processes"); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []witness.Process
	for _, d := range l.domains {
		if d.state.PID != 0 {
			all = append(all, process(d.state.PID, d.info))
		}
	}
	for pid, info := range l.forgotten {
		all = append(all, process(pid, info))
	}
	return all, nil
}

func process(pid int, info domain.Info) witness.Process {
	return witness.Process{PID: pid, Emulator: true, Domain: info.Name, UUID: info.UUID, Container: info.ContainerID}
}

// End implements witness's.
func (w *Witness) End(ctx context.Context, id witness.Identity) error {
	l := w.libvirt
	if err := l.script.enter(ctx, "Witness.End"); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for pid, info := range l.forgotten {
		if info.ContainerID == id.Container {
			if w.Slow {
				return errors.New("it is still there")
			}
			delete(l.forgotten, pid)
		}
	}
	for _, d := range l.domains {
		if d.info.ContainerID == id.Container {
			if w.Slow && d.state.PID != 0 {
				return errors.New("it is still there")
			}
			l.end(d, domain.ReasonFailed)
		}
	}
	l.notify()
	return nil
}

// AwaitEnd implements witness's.
func (w *Witness) AwaitEnd(ctx context.Context, p witness.Process) error {
	return w.libvirt.Processes.AwaitEnd(ctx, p.Domain, p.PID)
}
