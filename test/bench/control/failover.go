package control

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// failover is what happens after the leader was killed.
type failover struct {
	elected    time.Duration // until another replica led
	reconciled time.Duration // until a VMI that was created at once ran
	repeated   int           // the new leader's requests for VMs that were there before
	cpu        float64       // seconds that the new leader used
	footprint  footprint     // of the new leader
}

// failOver kills the leader and creates a VMI.
func (r *rig) failOver(ctx context.Context, t *transitions) (f failover, err error) {
	fmt.Fprintln(r.Log, "kill the leader")
	const ns = "failover"
	if err := r.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		return f, err
	}
	old, err := r.leader(ctx)
	if err != nil {
		return f, err
	}
	before, err := r.settled()
	if err != nil {
		return f, err
	}
	old.Stop()
	killed := time.Now()
	used, err := r.cpu()
	if err != nil {
		return f, err
	}
	vmi := instance(ns, ns)
	if err := t.create(ctx, r.client, vmi); err != nil {
		return f, err
	}
	for f.elected == 0 {
		if p, _ := r.leader(ctx); p != nil { // as long as none leads, there is an error
			f.elected = time.Since(killed)
		} else if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return f, fmt.Errorf("no other replica leads: %w", err)
		}
	}
	if _, err := t.wait(ctx, []client.ObjectKey{client.ObjectKeyFromObject(vmi)}); err != nil {
		return f, err
	}
	f.reconciled = time.Since(killed)
	if f.footprint, err = r.footprint(ctx); err != nil {
		return f, err
	}
	now, err := r.cpu()
	if err != nil {
		return f, err
	}
	f.cpu = now[program] - used[program]
	after, err := r.settled()
	f.repeated = after - before
	return f, err
}

// settled counts the controller's requests for the VMs that are there when the leader is killed.
func (r *rig) settled() (n int, err error) {
	all, err := readAudit(r.dir)
	for ns, requests := range all.requests {
		if ns != "" && ns != "failover" && ns != controllerNamespace {
			n += requests.all()
		}
	}
	return n, err
}
