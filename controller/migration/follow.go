package migration

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
)

const (
	// firstPoll is the time before the first look at a migration that runs, and the
	// shortest one between two; lastPoll is the longest.
	firstPoll = time.Second
	lastPoll  = 15 * time.Second
	// reportedPoll is firstPoll for a target whose node reports its VM.
	reportedPoll = 3 * time.Second
	// patience is how long the target alone is asked.
	patience = 10 * time.Second
	// silence is how long a source may give no answer before the migration says so.
	silence = 2 * time.Minute
)

// follower follows a migration from what both nodes report, until it has ended.
type follower struct {
	events events.EventRecorder
	now    func() time.Time
	orders interface {
		ask(ctx context.Context, m *migration, p *corev1.Pod, name string, argument any) (*order.Report, error)
	}
	statuses interface {
		write(ctx context.Context, m *migration, change func()) error
		begin(ctx context.Context, m *migration, vmi *instance) error
		setCondition(m *migration, kind kubevirt.VirtualMachineInstanceMigrationConditionType, reason, text string)
	}
	outcomes interface {
		succeed(ctx context.Context, w work) error
		fail(ctx context.Context, m *migration, vmi *instance, reason string) error
		stay(ctx context.Context, w work, reason string) error
	}
}

// follow asks both ends for their reports, and acts on them.
func (f *follower) follow(ctx context.Context, w work) (ctrl.Result, error) {
	if err := f.noteCancel(ctx, w); err != nil {
		return ctrl.Result{}, err
	}
	undone := w.m.Status.MigrationState.FailureReason != "" || cancelled(w.m)
	source, target := f.reports(ctx, w, undone)
	v := decide(source, target, undone)
	if v == undo {
		f.cancel(ctx, w, &source, &target)
		v = decide(source, target, true)
		undone = true
	}
	if v == resume {
		// What the cluster knows of the target takes the place of its answer.
		source.report, _ = f.orders.ask(ctx, w.m, w.source, order.Decide, order.Decision{Migration: named(w.m), Run: true})
		v = decide(source, target, true)
	}
	if v == undo && undone && neverSent(w.m, source, target) {
		v = failed
	}
	reason := cmp.Or(w.m.Status.MigrationState.FailureReason, reasonOf(w.m, source, target))
	if source.report != nil && source.report.Paused && w.m.Status.MigrationState.Mode != kubevirt.MigrationPaused {
		if err := f.statuses.write(ctx, w.m, func() { w.m.Status.MigrationState.Mode = kubevirt.MigrationPaused }); err != nil {
			return ctrl.Result{}, err
		}
	}
	switch {
	case v == succeed:
		return ctrl.Result{}, f.outcomes.succeed(ctx, w)
	case v == failed && source.is(stateKept):
		return ctrl.Result{}, f.outcomes.stay(ctx, w, reason)
	case v == failed:
		return ctrl.Result{}, f.outcomes.fail(ctx, w.m, w.vmi, reason)
	case undone: // a controller that restarts undoes it too
		if err := f.statuses.write(ctx, w.m, func() { w.m.Status.MigrationState.FailureReason = reason }); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: f.nextPoll(w)}, f.noteUnsettled(ctx, w, v, source, target)
}

// reports asks the target, and the source if the target does not decide: while both
// work, only one node is asked.
func (f *follower) reports(ctx context.Context, w work, undone bool) (source, target end) {
	source.State, target.State = w.sourceState, w.targetState
	if !target.Ended {
		target.report, _ = f.orders.ask(ctx, w.m, w.target, order.Status, named(w.m))
	}
	late := f.now().Sub(since(w.m).Time).Abs() > patience
	if target.is(stateTaken) || target.is(stateIncoming) && !undone && !late && !source.Ended || source.Ended {
		return source, target
	}
	source.report, _ = f.orders.ask(ctx, w.m, w.source, order.Status, named(w.m))
	return source, target
}

// cancel has both ends give up, the source first: it may not have handed the guest over
// yet. The answers replace the reports.
func (f *follower) cancel(ctx context.Context, w work, source, target *end) {
	if !source.Ended {
		if report, err := f.orders.ask(ctx, w.m, w.source, order.Cancel, named(w.m)); err == nil {
			source.report = report
		}
	}
	if !target.Ended {
		if report, err := f.orders.ask(ctx, w.m, w.target, order.Cancel, named(w.m)); err == nil {
			target.report = report
		}
	}
}

// neverSent reports whether a source that does not answer has no guest to settle, as it never got the order to send.
// One that got it may have handed its guest over, and waits for a decision when it answers again.
func neverSent(m *migration, source, target end) bool {
	sent := m.Status.Phase == kubevirt.MigrationTargetReady || m.Status.Phase == kubevirt.MigrationRunning
	return !sent && source.report == nil && !source.Lost && (target.report == nil || target.is(stateRefused, stateUnknown))
}

// nextPoll grows with the time that the migration has run. It may be longer if the target's node reports
// when the guest runs there, which is a reason to ask at once.
func (f *follower) nextPoll(w work) time.Duration {
	least := firstPoll
	if vmReady(w.target) != nil && w.m.Status.MigrationState.FailureReason == "" && !cancelled(w.m) {
		least = reportedPoll
	}
	return min(max(f.now().Sub(since(w.m).Time).Abs()/2, least), lastPoll)
}

// reasonCancelled is KubeVirt's.
const reasonCancelled = "Migration failed due to being canceled"

// noteCancel writes that a user has cancelled the migration.
func (f *follower) noteCancel(ctx context.Context, w work) error {
	if !cancelled(w.m) || w.m.Status.MigrationState.AbortRequested {
		return nil
	}
	err := f.statuses.write(ctx, w.m, func() {
		f.statuses.setCondition(w.m, kubevirt.VirtualMachineInstanceMigrationAbortRequested, "", "the migration's object was deleted")
		s := w.m.Status.MigrationState
		s.AbortRequested, s.AbortStatus = true, kubevirt.MigrationAbortInProgress
		s.FailureReason = cmp.Or(s.FailureReason, reasonCancelled)
	})
	if err != nil {
		return err
	}
	return f.statuses.begin(ctx, w.m, w.vmi)
}

// reasonOf returns why a migration must be undone, by what is known of both ends.
func reasonOf(m *migration, source, target end) string {
	switch {
	case target.report != nil && target.report.Reason != "":
		return "node " + m.Status.MigrationState.TargetNode + ": " + target.report.Reason
	case source.report != nil && source.report.Reason != "":
		return "node " + m.Status.MigrationState.SourceNode + ": " + source.report.Reason
	case target.Vacant:
		return "node " + m.Status.MigrationState.TargetNode + " is gone"
	case target.Ended:
		return "Migration failed because target pod shutdown during migration"
	case source.Ended:
		return "Migration failed vmi shutdown during migration."
	case source.is(stateUnknown):
		return "node " + m.Status.MigrationState.SourceNode + " has no record of the migration"
	case target.is(stateUnknown):
		return "node " + m.Status.MigrationState.TargetNode + " has no record of the migration"
	}
	return "the migration failed, and no node says why"
}

// noteUnsettled says what to do about a guest that no node runs, or that a node may have which does not answer.
func (f *follower) noteUnsettled(ctx context.Context, w work, v verdict, source, target end) error {
	reason, text := "TargetSilent", ""
	late := v == undo && f.now().Sub(since(w.m).Time).Abs() > silence
	s, taint := w.m.Status.MigrationState, corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute"
	switch {
	case v == unsettled:
		text = fmt.Sprintf("The guest is paused: node %s has handed it over, and node %s has not answered. "+
			"If node %s is off for good, taint it %s: the guest then continues on node %s.",
			s.SourceNode, s.TargetNode, s.TargetNode, taint, s.SourceNode)
	case late && source.report == nil:
		reason = "SourceSilent"
		text = fmt.Sprintf("Node %s, where the guest was, does not answer. The migration ends when it does. "+
			"If it is off for good, taint it %s.", s.SourceNode, taint)
	case late && target.report == nil && !target.Ended:
		text = fmt.Sprintf("Node %s, which may have the guest, does not answer. The migration ends when it does. "+
			"If it is off for good, taint it %s.", s.TargetNode, taint)
	}
	before := len(w.m.Status.Conditions)
	err := f.statuses.write(ctx, w.m, func() { f.statuses.setCondition(w.m, conditionUnsettled, reason, text) })
	if err == nil && text != "" && len(w.m.Status.Conditions) > before {
		f.events.Eventf(w.vmi, w.m, corev1.EventTypeWarning, "MigrationUnsettled", "Migrate", "%s", text)
	}
	return err
}
