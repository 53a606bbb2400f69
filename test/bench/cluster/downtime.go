package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// probePause is the time between two questions to a guest.
	probePause = 2 * time.Millisecond
	// probeTime bounds each, and with the pause how many are open at once.
	probeTime = 100 * time.Millisecond
	// discard is a port on which guests do not listen: their kernels refuse connections to it.
	discard = "9"
)

// probe asks an instance's guest whether it lives, at the addresses of all its pods, until its result is
// asked for: the longest time between two questions that were answered.
func (r *rig) probe(ctx context.Context, name string) (result func() (time.Duration, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var answered []time.Time
	var addresses []string
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			if now, err := r.addresses(ctx, name); err == nil {
				mu.Lock()
				addresses = now
				mu.Unlock()
			}
			_ = sleep(ctx, 100*time.Millisecond)
		}
	})
	all.Go(func() {
		for ctx.Err() == nil {
			mu.Lock()
			now := slices.Clone(addresses)
			mu.Unlock()
			for _, ip := range now {
				all.Go(func() {
					asked := time.Now()
					if r.refuses(ctx, ip) {
						mu.Lock()
						answered = append(answered, asked)
						mu.Unlock()
					}
				})
			}
			_ = sleep(ctx, probePause)
		}
	})
	return func() (longest time.Duration, err error) {
		_ = sleep(ctx, time.Second) // the guest may just have started
		cancel()
		all.Wait()
		if len(answered) < 2 {
			return 0, fmt.Errorf("the guest of %s answered %d times", name, len(answered))
		}
		slices.SortFunc(answered, time.Time.Compare)
		for i, at := range answered[1:] {
			longest = max(longest, at.Sub(answered[i]))
		}
		return longest, nil
	}
}

// refuses reports whether a guest's kernel refuses a connection.
func (r *rig) refuses(ctx context.Context, ip string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	c, err := r.Control().Dial(ctx, "tcp", ip+":"+discard)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// addresses returns those of an instance's pods.
func (r *rig) addresses(ctx context.Context, name string) (ips []string, err error) {
	list, err := r.client.Resource(pods).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: "vm.kubevirt.io/name=" + name})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if ip, _, _ := unstructured.NestedString(p.Object, "status", "podIP"); ip != "" {
			ips = append(ips, ip)
		}
	}
	return ips, nil
}
