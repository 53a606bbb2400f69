package control

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

type object = client.Object

// burst is what it took to make the pods of some objects.
type burst struct {
	n        int
	made     time.Duration // from the first request until the last pod
	requests requests
	memory   weight // afterwards, with all objects so far
}

// each is the time for a pod, in milliseconds.
func (b burst) each() float64 { return float64(b.made.Microseconds()) / 1000 / float64(b.n) }

// burst makes objects and waits for their pods.
func (r *rig) burst(ctx context.Context, n int, prefix string, wanted func(ns, name string) object) (b burst, err error) {
	b = burst{n: n}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, n)}}
	fmt.Fprintf(r.Log, "%d of a %s\n", n, prefix)
	if err := r.client.Create(ctx, ns); err != nil {
		return b, err
	}
	begun := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(r.Clients)
	for i := range n {
		group.Go(func() error { return r.client.Create(groupCtx, wanted(ns.Name, fmt.Sprintf("%s-%d", prefix, i))) })
	}
	if err := group.Wait(); err != nil {
		return b, err
	}
	if err := r.await(ctx, ns.Name, n); err != nil {
		return b, err
	}
	b.made = time.Since(begun)
	if b.memory, err = r.weigh(ctx); err != nil {
		return b, err
	}
	all, err := readAudit(r.dir)
	b.requests = all.requests[ns.Name]
	return b, err
}

// rows reports a burst of objects of that name and resource, with goals of memory and of time.
func (b burst) rows(name, resource string, memory, made float64) []report.Row {
	each := func(count int) float64 { return float64(count) / float64(b.n) }
	all := []report.Row{report.One(fmt.Sprintf("%d %ss: made, each", b.n, name), "ms", b.each(), made)}
	add := func(what, unit string, v, goal float64) {
		all = append(all, report.One(fmt.Sprintf("%d %ss: %s", b.n, name, what), unit, v, goal))
	}
	add("all replicas", "MiB", b.memory.pss, memory)
	add("requests, each", "", each(b.requests.all()), requestGoal)
	add("writes of it, each", "", each(b.requests.writes(resource)), writeGoal)
	return all
}
