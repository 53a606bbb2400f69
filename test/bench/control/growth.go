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
	early       []float64     // the same of the next few, created one by one while the controller reports on those
	rest        time.Duration // from when all of those ran until the controller had no more to do
	steady      []float64     // the same of the others, created one by one after that
	cpu         map[string]float64
	footprint   footprint // at the end
	requests    requests
}

// Rate is how many objects a second KubeVirt's density test creates.
const Rate = 10

// maxSteady bounds the number of a step's objects that are created one by one, and maxEarly those of them that
// are created before the controller rests.
const (
	maxSteady = 100
	maxEarly  = 10
)

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
	ran := time.Now()
	s.ran = ran.Sub(begun)
	if s.cpu, err = r.cpu(); err != nil {
		return s, err
	}
	for name := range s.cpu {
		s.cpu[name] -= before[name]
	}
	later := s.atOnce + min((s.grown-s.atOnce)/2, maxEarly)
	if s.early, err = r.oneByOne(ctx, t, objects[s.atOnce:later], keys[s.atOnce:later]); err != nil {
		return s, err
	}
	if s.rest, err = r.rest(ctx, ran); err != nil {
		return s, err
	}
	if s.steady, err = r.oneByOne(ctx, t, objects[later:], keys[later:]); err != nil {
		return s, err
	}
	if s.footprint, err = r.footprint(ctx); err != nil {
		return s, err
	}
	all, err := readAudit(r.dir)
	s.requests = all.requests[ns]
	return s, err
}

// oneByOne creates objects at the rate, and returns the seconds that each took to run.
func (r *rig) oneByOne(ctx context.Context, t *transitions, objects []object, keys []client.ObjectKey) ([]float64, error) {
	for _, o := range objects {
		if err := t.create(ctx, r.client, o); err != nil {
			return nil, err
		}
		if err := sleep(ctx, time.Second/time.Duration(r.Rate)); err != nil {
			return nil, err
		}
	}
	return t.wait(ctx, keys)
}

// each returns milliseconds for each of the objects that were created at once.
func (s step) each(seconds float64) float64 { return seconds * 1000 / float64(s.atOnce) }
