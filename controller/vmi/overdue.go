package vmi

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
)

// OrderPowerOff is the machine control that ends a guest at once, also while a stop waits for it to shut down.
const OrderPowerOff = "power-off"

const (
	// overdueMargin is how long beyond its grace period a guest may run before its node gets the order: the kubelet ends
	// it by itself, unless a stop with a longer period runs there.
	overdueMargin = 2 * time.Second
	// overdueTime bounds the order, overdueAgain the time until the next one.
	overdueTime  = 5 * time.Second
	overdueAgain = 5 * time.Second
	// maxOverdue bounds the memory that deleted pods take. One that is forgotten has its grace period again.
	maxOverdue = 10000
	// maxPowerOff bounds the node's answer, in bytes.
	maxPowerOff = 4096
)

// Nodes gives orders to VMs; [control.Client].
type Nodes interface {
	Control(ctx context.Context, p *corev1.Pod, most int, name string, arguments ...string) ([]byte, error)
}

// overdue has nodes power guests off whose grace period is over. A kubelet does not cut off a stop that runs when a user
// shortens the period, as with virtctl stop --force or a second kubectl delete.
type overdue struct {
	nodes  Nodes
	events events.EventRecorder
	now    func() time.Time

	mu   sync.Mutex
	pods map[types.UID]stopping
}

// stopping is a pod that is being deleted, as it was found.
type stopping struct {
	grace int64
	// since is by the controller's clock. The API server's clock may differ: a guest that shuts down must not lose a part
	// of its time.
	since time.Time
}

// end orders the node of a deleted pod whose guest still runs to power it off, if it is time, and returns when to look
// again; 0 for never.
func (o *overdue) end(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, v view) (time.Duration, error) {
	p := v.pod
	if p.DeletionTimestamp == nil || !v.running() || v.ended() || v.completed() {
		o.forget(p.UID)
		return 0, nil
	}
	if v.node.silent() {
		return 0, nil // no order arrives
	}
	if left := o.left(p); left > 0 {
		return left, nil
	}
	ctx, cancel := context.WithTimeout(ctx, overdueTime)
	defer cancel()
	if _, err := o.nodes.Control(ctx, p, maxPowerOff, OrderPowerOff); err != nil {
		return overdueAgain, fmt.Errorf("power off the guest of pod %s/%s on node %s, whose grace period is over: %w", p.Namespace, p.Name, p.Spec.NodeName, err)
	}
	o.events.Eventf(vmi, p, corev1.EventTypeWarning, "PoweredOff", "Stop",
		"The guest had not shut down within its grace period of %d s, and was powered off", o.grace(p))
	return overdueAgain, nil
}

// left returns how long the guest of a deleted pod still has.
func (o *overdue) left(p *corev1.Pod) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	grace := o.grace(p)
	one, known := o.pods[p.UID]
	if !known || one.grace != grace {
		if o.pods == nil {
			o.pods = map[types.UID]stopping{}
		}
		for uid := range o.pods {
			if len(o.pods) < maxOverdue {
				break
			}
			delete(o.pods, uid)
		}
		one = stopping{grace, o.now()}
		o.pods[p.UID] = one
	}
	return max(time.Duration(grace)*time.Second+overdueMargin-o.now().Sub(one.since), 0)
}

// grace returns the grace period of a deleted pod in seconds.
func (o *overdue) grace(p *corev1.Pod) int64 {
	if s := p.DeletionGracePeriodSeconds; s != nil {
		return min(max(*s, 0), maxGrace)
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

func (o *overdue) forget(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pods, uid)
}
