package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
)

// phase is one part of a start. It begins when the phases that it names in after
// have ended, so that phases which do not need each other run at the same time.
type phase struct {
	name  string
	after []string
	do    func(*start, context.Context) error
	// undo works from the record alone. It has its own time limit, so that a part
	// which hangs takes no time from the others. It is nil for a phase whose work
	// another phase's undo covers.
	undo     func(*teardown, context.Context, *record.Container) error
	undoTime time.Duration
}

// phases are a start, each after those that it needs. The end of a VM is the same
// list backwards: the cgroup is the last to go, since it can go only when QEMU,
// dnsmasq, swtpm, virtiofsd and the disks' processes have ended.
//
// The domain starts paused. QEMU is in the VM's cgroup, and its card is
// connected, before the guest executes its first instruction. A tap moves into
// the pod only when QEMU, in libvirtd's network namespace, has the tap open.
func phases() []phase {
	return []phase{
		{"cgroup", nil, (*start).makeGroup, (*teardown).removeGroup, 5 * time.Second},
		{"taps", []string{"cgroup"}, (*start).makeTaps, (*teardown).removeNetwork, 10 * time.Second},
		{"bridge", []string{"taps"}, (*start).makeBridge, nil, 0},
		{"dhcp", []string{"bridge"}, (*start).serveDHCP, nil, 0},
		{"console", []string{"cgroup"}, (*start).followConsole, (*teardown).finishConsole, 10 * time.Second},
		{"display", []string{"cgroup"}, (*start).makeDisplay, (*teardown).removeDisplay, 5 * time.Second},
		{"disks", []string{"cgroup"}, (*start).attachDisks, (*teardown).detachDisks, 10 * time.Second},
		{"variables", []string{"cgroup"}, (*start).openVariables, nil, 0},
		{"tpm", []string{"cgroup"}, (*start).startTPM, (*teardown).removeTPM, 10 * time.Second},
		{"filesystems", []string{"cgroup"}, (*start).startFilesystems, (*teardown).removeFilesystems, 10 * time.Second},
		{"hooks", nil, (*start).awaitHooks, (*teardown).shutDownHooks, 10 * time.Second},
		{"devices", []string{"cgroup"}, (*start).lendDevices, (*teardown).takeBackDevices, 5 * time.Second},
		{"domain", []string{"taps", "console", "display", "disks", "variables", "tpm", "filesystems", "hooks", "devices"}, (*start).defineDomain, (*teardown).removeDomain, 20 * time.Second},
		{"tags", []string{"domain"}, func(s *start, ctx context.Context) error { return newTagger(s.parts).write(ctx, s.rec) }, nil, 0},
		{"start", []string{"tags"}, (*start).startDomain, nil, 0},
		{"board", []string{"start"}, func(s *start, ctx context.Context) (err error) {
			s.machine, err = s.parts.observer.MachineType(ctx, s.rec.Domain.UUID)
			return err
		}, nil, 0},
		{"firmware", []string{"start"}, (*start).keepVariables, nil, 0},
		{"process", []string{"domain"}, (*start).awaitProcess, nil, 0},
		{"placement", []string{"process"}, (*start).placeQEMU, nil, 0},
		{"connect", []string{"process", "bridge"}, (*start).connect, nil, 0},
		{record.PhaseResume, []string{"firmware", "placement", "connect", "dhcp"}, (*start).resume, nil, 0},
		{record.PhaseIdentity, []string{record.PhaseResume}, func(s *start, ctx context.Context) (err error) {
			s.identity, err = renewer{s.parts.agents, s.parts.log}.renew(ctx, s.vm, s.rec)
			return err
		}, nil, 0},
	}
}

// runPhases runs the phases, and cancels the others when one fails. It returns the
// first error when none runs any more: that of a phase which was at work, and not
// of one that waited for it. measure gets each phase that has ended, from any
// goroutine.
func runPhases(ctx context.Context, s *start, all []phase, measure func(record.Phase)) error {
	group, together := errgroup.WithContext(ctx)
	ended := map[string]chan struct{}{}
	for _, one := range all {
		ended[one.name] = make(chan struct{})
	}
	for _, one := range all {
		group.Go(func() error {
			for _, needed := range one.after {
				select {
				case <-ended[needed]:
				case <-together.Done():
					return nil
				}
			}
			own, done := beginPhase(together, one.name)
			err := one.do(s, own)
			measure(done(err))
			if err != nil {
				return err
			}
			close(ended[one.name])
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, done := range ended {
		select {
		case <-done:
		default:
			return context.Cause(ctx) // it ended between two phases
		}
	}
	return nil
}

// errMayRun means that QEMU is there or may be, and uses what other phases would release.
var errMayRun = errors.New("the VM's QEMU may run")

// undoPhases undoes the phases, the last first, whatever of them was done. It
// records in r, which the caller writes, whether all is undone now. While QEMU may run it releases nothing.
func undoPhases(ctx context.Context, t *teardown, r *record.Container) error {
	if !r.Unclean {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, one := range slices.Backward(phases()) {
		if one.undo == nil {
			continue
		}
		if err := undoPhase(ctx, t, one, r); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", one.name, err))
			if errors.Is(err, errMayRun) {
				break
			}
		}
	}
	r.Unclean = len(errs) > 0
	return errors.Join(errs...)
}

func undoPhase(ctx context.Context, t *teardown, one phase, r *record.Container) error {
	ctx, cancel := background.AtMost(ctx, one.undoTime)
	defer cancel()
	return one.undo(t, ctx, r)
}
