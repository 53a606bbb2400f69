package move

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/control"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// Controls returns the names of the machine controls of migrations.
func Controls() []string {
	return []string{order.Identify, order.Receive, order.Send, order.Status, order.Cancel, order.Decide}
}

// Do carries out a machine control with its argument, and returns its answer.
func (m *Moves) Do(ctx context.Context, v *table.VM, name, argument string) ([]byte, error) {
	switch name {
	case order.Identify:
		return answer(ctx, v, argument, m.sources.identify)
	case order.Receive:
		return answer(ctx, v, argument, m.targets.receive)
	case order.Send:
		return answer(ctx, v, argument, m.sources.send)
	case order.Status:
		return answer(ctx, v, argument, m.status)
	case order.Cancel:
		return answer(ctx, v, argument, m.cancel)
	case order.Decide:
		return answer(ctx, v, argument, m.sources.decide)
	}
	return nil, fmt.Errorf("%w: there is no control %q of migrations", vmerrors.ErrInvalid, name)
}

// answer is [control.Answer] for an order about a migration, whose UID it checks.
func answer[A, R any](ctx context.Context, v *table.VM, argument string, do func(context.Context, *table.VM, A) (R, error)) ([]byte, error) {
	about, err := control.Read[order.Migration](argument)
	if err != nil {
		return nil, err
	}
	if len(validation.IsDNS1123Label(about.Migration)) > 0 {
		return nil, fmt.Errorf("%w: %.80q is not a migration's UID", vmerrors.ErrInvalid, about.Migration)
	}
	return control.Answer(ctx, v, argument, do)
}

// known returns the migration of a UID.
func (m *node) known(v *table.VM, uid string) (*migration, error) {
	one, broken := m.of(v).last()
	if broken != nil {
		return nil, broken
	}
	if one == nil || one.uid != uid {
		return nil, fmt.Errorf("%w: the VM has no migration %s here", vmerrors.ErrNotFound, uid)
	}
	return one, nil
}

// status reports a migration, from memory alone.
func (m *Moves) status(_ context.Context, v *table.VM, a order.Migration) (order.Report, error) {
	if r := v.Record(); r.Incoming == a.Migration && r.State == record.Running {
		if one, _ := m.node.of(v).last(); one == nil { // it waits for the order to receive
			return order.Report{Migration: a, State: string(handover.Incoming)}, nil
		}
	}
	return m.about(v, a, order.Report{Migration: a})
}

// about reports a migration, or returns the report for one that is not known.
func (m *Moves) about(v *table.VM, a order.Migration, unknown order.Report) (order.Report, error) {
	one, err := m.node.known(v, a.Migration)
	switch {
	case errors.Is(err, vmerrors.ErrNotFound):
		return unknown, nil
	case err != nil:
		return order.Report{}, err
	}
	return one.report(), nil
}

var errCancelled = errors.New("the migration was cancelled")

// cancel ends a migration that is not handed over. The report says how far it came.
func (m *Moves) cancel(ctx context.Context, v *table.VM, a order.Migration) (order.Report, error) {
	unknown := order.Report{Migration: a}
	if r := v.Record(); r.Incoming == a.Migration && r.State == record.Running {
		if err := m.End(ctx, v, errCancelled.Error()); err != nil {
			return order.Report{}, err
		}
		unknown.State, unknown.Reason, unknown.Ended = string(handover.Refused), errCancelled.Error(), true
	}
	one, err := m.node.known(v, a.Migration)
	if err == nil {
		one.stop(errCancelled)
	}
	if v.Record().Incoming == "" && (err != nil || one.ends() == nil) {
		m.node.o.Life().Announce(v) // the target's pod may have announced itself, and the copy has not begun
	}
	return m.about(v, a, unknown)
}

// decide ends a migration whose target does not answer, as the caller knows what
// happened to the guest there.
func (m *sources) decide(ctx context.Context, v *table.VM, a order.Decision) (order.Report, error) {
	one, err := m.known(v, a.Migration.Migration)
	if err != nil {
		return order.Report{}, err
	}
	source := one.from()
	if source == nil {
		return order.Report{}, fmt.Errorf("%w: this node is not the source of migration %s", vmerrors.ErrState, one.uid)
	}
	if source.Record().Ended {
		return one.report(), nil
	}
	decision := handover.Answer{State: handover.Taken}
	if a.Run {
		decision = handover.Answer{State: handover.Refused, Reason: "it was decided that the source runs the guest"}
	}
	within, cancel := background.AtMost(ctx, patience)
	defer cancel()
	if err := source.Decide(within, decision); err != nil {
		return order.Report{}, err
	}
	return one.report(), nil
}
