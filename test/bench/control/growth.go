package control

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// step is what it took to come to a number of VMs from the one before.
type step struct {
	size, grown int           // how many there are, and how many the step added
	atOnce      int           // as many of them were created at once, the others one by one
	created     time.Duration // until the API server had taken those
	ran         time.Duration // until all of those ran
	burst       []float64     // the seconds that each of those took to run
	steady      []float64     // the same of the others
	cpu         map[string]float64
	footprint   footprint // at the end
	requests    requests
}

// Rate is how many objects a second KubeVirt's density test creates.
const Rate = 10

// maxSteady bounds the number of a step's objects that are created one by one.
const maxSteady = 100

// grow adds objects up to a number of them, and measures.
func (r *rig) grow(ctx context.Context, t *transitions, prefix string, from, to int, wanted func(ns, name string) object) (s step, err error) {
	s = step{size: to, grown: to - from}
	s.atOnce = s.grown - min(s.grown/10, maxSteady)
	ns := fmt.Sprintf("%s-%d", prefix, to)
	fmt.Fprintf(r.Log, "%d of a %s\n", to, prefix)
	if err := r.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		return s, err
	}
	objects := make([]object, s.grown)
	keys := make([]client.ObjectKey, s.grown)
	for i := range objects {
		objects[i] = wanted(ns, fmt.Sprintf("%s-%d", prefix, i))
		keys[i] = client.ObjectKeyFromObject(objects[i])
	}
	before, err := r.cpu()
	if err != nil {
		return s, err
	}
	begun := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(r.Clients)
	for _, o := range objects[:s.atOnce] {
		group.Go(func() error { return t.create(groupCtx, r.client, o) })
	}
	if err := group.Wait(); err != nil {
		return s, err
	}
	s.created = time.Since(begun)
	if s.burst, err = t.wait(ctx, keys[:s.atOnce]); err != nil {
		return s, err
	}
	s.ran = time.Since(begun)
	if s.cpu, err = r.cpu(); err != nil {
		return s, err
	}
	for name := range s.cpu {
		s.cpu[name] -= before[name]
	}
	for _, o := range objects[s.atOnce:] {
		if err := t.create(ctx, r.client, o); err != nil {
			return s, err
		}
		if err := sleep(ctx, time.Second/time.Duration(r.Rate)); err != nil {
			return s, err
		}
	}
	if s.steady, err = t.wait(ctx, keys[s.atOnce:]); err != nil {
		return s, err
	}
	if s.footprint, err = r.footprint(ctx); err != nil {
		return s, err
	}
	all, err := readAudit(r.dir)
	s.requests = all.requests[ns]
	return s, err
}

// each returns milliseconds for each of the objects that were created at once.
func (s step) each(seconds float64) float64 { return seconds * 1000 / float64(s.atOnce) }
