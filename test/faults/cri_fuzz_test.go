//go:build faults

package faults

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	criClients = 16
	// perLife is how many calls there are at most for each VM that runs.
	perLife = 10
)

// TestFuzzCRI has clients make random calls at once, valid and not, and compares each answer, and the
// node's state after it, with a model's. The calls of a client depend on the seed alone.
func TestFuzzCRI(t *testing.T) {
	begin(t)
	var all sync.WaitGroup
	clients := make([]*criClient, criClients)
	for i := range clients {
		c, err := newCRIClient(*seed, i)
		assert.NilError(t, err)
		clients[i] = c
		all.Go(func() {
			if err := c.run(t.Context(), *calls/criClients); err != nil {
				t.Errorf("client %d: %v\nits last calls:\n%s\nagain: make test-fuzz-cri CALLS=%d SEED=%d",
					i, err, strings.Join(c.history, "\n"), *calls, *seed)
			}
		})
	}
	begun := time.Now()
	all.Wait()
	made, lives, twice, givenUp, got := 0, 0, 0, 0, map[codes.Code]int{}
	for _, c := range clients {
		made, lives, twice, givenUp = made+c.calls, lives+c.lives, twice+c.twice, givenUp+c.givenUp
		for code, n := range maps.All(c.codes) {
			got[code] += n
		}
	}
	t.Logf("seed %d: %d calls, %d VMs ran, %d pairs at once, %d calls given up, in %s: %v",
		*seed, made, lives, twice, givenUp, time.Since(begun).Round(time.Second), got)
	if lives*perLife < *calls && !t.Failed() {
		t.Errorf("%d VMs ran", lives)
	}
}

// run makes calls, and removes the pod.
func (c *criClient) run(ctx context.Context, calls int) (err error) {
	for err == nil && c.calls < calls {
		if err = c.step(ctx); err == nil && c.sandbox == absent && c.id != "" {
			err = c.finish(ctx)
		}
	}
	if c.sandbox == absent { // a refused pod may have a cgroup
		return errors.Join(err, removeCgroups(ctx, c.config.Linux.CgroupParent, ""))
	}
	remove := func(ctx context.Context) error {
		_, err := suite.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: c.id})
		return err
	}
	return errors.Join(err, converge(ctx, remove), c.finish(ctx))
}

// finish ends with a pod that is removed, as a kubelet does, and begins with another.
func (c *criClient) finish(ctx context.Context) error {
	if err := removeCgroups(ctx, c.config.Linux.CgroupParent, ""); err != nil {
		return err
	}
	c.gone = append(c.gone, c.id)
	return c.nextPod()
}

// choose is the next call: one that leads the pod on, or any.
func (c *criClient) choose() operation {
	if c.lives*(perLife-1) <= c.calls || c.r.IntN(2) == 0 {
		return c.onward()
	}
	some := [][]operation{
		{runPod(), createNext(), createAgain(), startVM(), stopVM(0), stopVM(-1), removeVM()},
		{stopPod(), removePod()}, refusals(), vmCalls(), vmCalls(), podCalls(), nodeCalls(),
	}[c.r.IntN(7)]
	return some[c.r.IntN(len(some))]
}

// onward is a call that leads the pod on in its life, and VMs in it in theirs.
func (c *criClient) onward() operation {
	n := c.r.IntN(100)
	switch {
	case c.sandbox == absent:
		return runPod()
	case c.sandbox == stopped, len(c.containers) > 3:
		return removePod()
	}
	switch c.now() {
	case unknown:
		return createNext()
	case created:
		return startVM()
	case running:
		switch {
		case n < 50:
			return stopVM(0)
		case n < 53:
			return stopVM(1) // the guest ignores the power button
		case n < 85:
			return removeVM()
		case n < 92:
			return stopPod()
		}
		return removePod()
	}
	switch {
	case n < 70:
		return createNext()
	case n < 85:
		return removeVM()
	}
	return removePod()
}
