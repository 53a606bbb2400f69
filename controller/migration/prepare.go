package migration

import (
	"cmp"
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/migrationpolicy"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
)

// prepareFor is how long the nodes may fail to carry out the orders.
const prepareFor = 20 * time.Second

// prepare connects both ends. No guest is at stake before the order [order.Send]: the phase
// TargetReady, which says that it may have been given, is written first. Nodes give the
// same answers again, so a controller that restarts in that phase repeats all of it. Reached changes the
// status to what is reached and not written yet.
func (r *Reconciler) prepare(ctx context.Context, w work, reached func()) (ctrl.Result, error) {
	sent := w.m.Status.Phase == kubevirt.MigrationTargetReady
	switch {
	case cancelled(w.m), w.m.Status.MigrationState.FailureReason != "", sent && (w.sourceState.Ended || w.targetState.Ended):
		return r.follower.follow(ctx, w)
	case w.sourceState.Ended:
		return ctrl.Result{}, r.outcomes.fail(ctx, w.m, w.vmi, "Migration failed vmi shutdown during migration.")
	case w.targetState.Ended || w.target.DeletionTimestamp != nil:
		return ctrl.Result{}, r.giveUp(ctx, w, "Migration failed because target pod shutdown during migration")
	}
	source, err := r.orders.identify(ctx, w)
	if err != nil {
		return r.unprepared(ctx, w, reached, err)
	}
	containers, waits, err := r.volumes.Attach(ctx, w.vmi, w.source, w.target, plugged(source.Guest)...)
	if err != nil {
		return ctrl.Result{}, err
	}
	if waits != "" {
		return r.unprepared(ctx, w, reached, errors.New(waits))
	}
	target, err := r.orders.receive(ctx, w, source, containers)
	if err != nil {
		return r.unprepared(ctx, w, reached, err)
	}
	now := metav1.NewTime(r.now())
	err = r.statuses.write(ctx, w.m, func() {
		reached()
		r.statuses.enter(w.m, kubevirt.MigrationTargetReady)
		s := w.m.Status.MigrationState
		s.TargetNode, s.TargetNodeAddress = w.target.Spec.NodeName, target.Address
		s.StartTimestamp = cmp.Or(s.StartTimestamp, &now)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.statuses.begin(ctx, w.m, w.vmi); err != nil {
		return ctrl.Result{}, err
	}
	return r.send(ctx, w, target)
}

// plugged returns the names of the disks that a guest has got since it runs.
func plugged(g *order.Guest) []string {
	var all []string
	for _, d := range g.Plugged {
		all = append(all, d.Name)
	}
	return all
}

// unprepared tries again for a while: nothing has happened yet.
func (r *Reconciler) unprepared(ctx context.Context, w work, reached func(), why error) (ctrl.Result, error) {
	if err := r.statuses.write(ctx, w.m, reached); err != nil {
		return ctrl.Result{}, err
	}
	if r.now().Sub(since(w.m).Time).Abs() < prepareFor {
		return ctrl.Result{RequeueAfter: 2 * time.Second}, nil
	}
	reason := "Failed to prepare the migration: " + why.Error()
	if w.m.Status.Phase != kubevirt.MigrationTargetReady {
		return ctrl.Result{}, r.giveUp(ctx, w, reason)
	}
	if err := r.statuses.write(ctx, w.m, func() { w.m.Status.MigrationState.FailureReason = reason }); err != nil {
		return ctrl.Result{}, err
	}
	return r.follower.follow(ctx, w)
}

// send has the source begin.
func (r *Reconciler) send(ctx context.Context, w work, target order.Identity) (ctrl.Result, error) {
	report, sent := r.orders.ask(ctx, w.m, w.source, order.Send, sending(w, target))
	err := r.statuses.write(ctx, w.m, func() {
		r.statuses.enter(w.m, kubevirt.MigrationRunning)
		if report != nil && report.Paused {
			w.m.Status.MigrationState.Mode = kubevirt.MigrationPaused
		}
		if sent != nil { // it may have begun all the same
			w.m.Status.MigrationState.FailureReason = sent.Error()
		}
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if sent == nil { // which the event of that write is not a reason to ask about
		r.asked.note(w, r.now())
	}
	return ctrl.Result{RequeueAfter: r.follower.nextPoll(w)}, nil
}

// sending returns the order to the source, with what the migration's policy says.
func sending(w work, target order.Identity) order.Sending {
	c := w.m.Status.MigrationState.VMIMConfigurationOptions
	if c == nil { // a former version began the migration
		c = migrationpolicy.Configure(nil, config.Config{}.Migrations())
	}
	return order.Sending{
		Migration: named(w.m), Target: target, Node: w.target.Spec.NodeName, Bandwidth: c.BandwidthPerMigration.Value(), AutoConverge: *c.AllowAutoConverge,
		Pause:   *c.AllowWorkloadDisruption,
		PerGiB:  time.Duration(min(*c.CompletionTimeoutPerGiB, maxCopy)) * time.Second,
		Timeout: copyTime(w.vmi, *c.CompletionTimeoutPerGiB),
		Stall:   time.Duration(*c.ProgressTimeout) * time.Second,
	}
}

// maxCopy bounds all copies, in seconds.
const maxCopy = 365 * 24 * 60 * 60

// copyTime bounds the copy of memory, by the seconds that a GiB may take; 0 is no bound. It is for nodes that don't
// know how to bound the copy of disks, too: the cluster does not know their size.
func copyTime(vmi *instance, perGiB int64) time.Duration {
	m := vmi.Status.Memory
	if vmi.Status.MigrationMethod == kubevirt.BlockMigration || len(vmi.Status.MigratedVolumes) > 0 || m == nil || m.GuestCurrent == nil {
		return 0
	}
	const gib, most = 1 << 30, 1 << 20
	size := min(max((m.GuestCurrent.Value()+gib-1)/gib, 1), most)
	return time.Duration(min(perGiB*size, maxCopy)) * time.Second
}
