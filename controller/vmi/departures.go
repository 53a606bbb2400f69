package vmi

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// margin is how long a kubelet that lives has, beyond the grace period, to end the pods of its deleted Node and
	// to report that: Kubernetes' pod GC needs up to a minute of it to delete them.
	margin = 2 * time.Minute
	// beat is longer than a kubelet needs to renew its lease once.
	beat = 20 * time.Second
	// leasePoll is how often to read the lease meanwhile.
	leasePoll = 30 * time.Second
	// maxGrace keeps the time in range: it is a year, in seconds.
	maxGrace = 365 * 24 * 60 * 60
	// maxDepartures bounds the memory that Nodes take that never return.
	maxDepartures = 10000
)

// departures decides whether the guests of a Node that was deleted have ended. The deletion alone proves nothing: the
// kubelet and its guests may run on. A lease of the kubelet that stays the same, by the controller's clock, does.
type departures struct {
	live client.Reader
	now  func() time.Time

	mu    sync.Mutex
	nodes map[string]*departure
}

// departure is what is known of a deleted Node.
type departure struct {
	// lost: its kubelet did not report when the Node was deleted.
	lost bool
	// lease is the version of its last lease; "" for none. A kubelet without a Node makes no lease.
	lease string
	// since is when the lease was found so.
	since time.Time
}

// deleted notes that a Node was deleted, and in which state.
func (d *departures) deleted(name string, last node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room()
	d.nodes[name] = &departure{lost: last.lost, since: d.now()}
}

// returned forgets a Node that exists.
func (d *departures) returned(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, name)
}

// room makes room for another departure. A Node that is forgotten is one of which less is known, so that its guests
// wait for longer.
func (d *departures) room() {
	if d.nodes == nil {
		d.nodes = map[string]*departure{}
	}
	for name := range d.nodes {
		if len(d.nodes) < maxDepartures {
			return
		}
		delete(d.nodes, name)
	}
}

// wait returns how long a pod on a Node that does not exist still has to end by itself; 0 if its guest has ended.
func (d *departures) wait(ctx context.Context, p *corev1.Pod) (time.Duration, error) {
	lease, err := d.lease(ctx, p.Spec.NodeName)
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.nodes[p.Spec.NodeName]
	if one == nil {
		d.room()
		one = &departure{lease: lease, since: d.now()}
		d.nodes[p.Spec.NodeName] = one
	}
	if lease != one.lease && lease != "" {
		one.lost = one.lost && one.lease == "" // the kubelet has renewed it since the Node was deleted
		one.lease, one.since = lease, d.now()
	}
	needed := patience(p)
	switch {
	case one.lost && lease == "":
		needed = 0
	case one.lost:
		needed = min(beat, needed)
	}
	return max(needed-d.now().Sub(one.since), 0), nil
}

// lease returns the version of a kubelet's lease; "" if there is none.
func (d *departures) lease(ctx context.Context, node string) (string, error) {
	l := new(coordinationv1.Lease)
	err := d.live.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node}, l)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read lease %s/%s: %w", corev1.NamespaceNodeLease, node, err)
	}
	return version(l.UID, l.Spec.RenewTime), nil
}

// version is another one after each renewal. It does not compare clocks.
func version(uid types.UID, renewed *metav1.MicroTime) string {
	return fmt.Sprintf("%s %s", uid, renewed)
}

// patience is how long the node of a pod must not have been heard for its guest to be taken for ended.
func patience(p *corev1.Pod) time.Duration {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = min(max(*s, 0), maxGrace)
	}
	return time.Duration(grace)*time.Second + margin
}
