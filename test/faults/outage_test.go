//go:build faults

package faults

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// begin notes what there is, and has it compared when the test ends.
func begin(t *testing.T) *round {
	t.Helper()
	before, err := suite.Leftovers(t.Context())
	assert.NilError(t, err)
	size, err := shimSize(t.Context())
	assert.NilError(t, err)
	p, err := newPod("case", suite.halt, 64<<20)
	assert.NilError(t, err)
	r := &round{plan: plan{calls: life}, pod: p, before: before, size: size, begun: time.Now()}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for what, err := range map[string]error{
			"steady guests": r.look(ctx), "removal": r.remove(ctx),
			"leftovers": converge(ctx, asBefore(before)), "growth": converge(ctx, noGrowth(size)), "secrets": discreet(ctx),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	return r
}

// beside is one more pod in a test, removed when that ends.
func (r *round) beside(t *testing.T, name string) *round {
	t.Helper()
	p, err := newPod(name, suite.halt, 64<<20)
	assert.NilError(t, err)
	b := &round{plan: r.plan, pod: p, begun: time.Now()}
	t.Cleanup(func() { assert.NilError(t, b.remove(context.WithoutCancel(t.Context()))) })
	return b
}

// does makes some of life's calls.
func (r *round) does(t *testing.T, calls ...call) {
	t.Helper()
	for _, c := range calls {
		if err := c.do(t.Context(), r.pod); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
}

// loses kills daemons: what one leaves for good by itself is no fault then.
func (r *round) loses(t *testing.T, victims ...string) {
	t.Helper()
	for _, name := range victims {
		r.kills = append(r.kills, kill{victim: name})
		assert.NilError(t, suite.Kill(t.Context(), name, syscall.SIGKILL))
	}
}

func TestKilledWhileGuestsRun(t *testing.T) {
	for _, killed := range [][]string{
		{node.Libvirtd}, {node.Containerd}, {node.Shim}, {node.Tgtd},
		{node.Tgtd, node.Libvirtd}, {node.Shim, node.Tgtd},
		{node.Containerd, node.Tgtd, node.Libvirtd, node.Shim}, // all at once
	} {
		t.Run(strings.Join(killed, "-"), func(t *testing.T) {
			r := begin(t)
			r.does(t, life[:started]...)
			r.loses(t, killed...)
			for _, g := range suite.steady {
				assert.NilError(t, g.echoes())
			}
			assert.NilError(t, resume(t.Context(), killed...))
			assert.NilError(t, r.look(t.Context()))
			r.does(t, life[started:]...)
		})
	}
}

func TestQEMUKilledWhileTheShimIsAway(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started]...)
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	if !killAll(r.domain()) {
		t.Fatal("QEMU did not run")
	}
	assert.NilError(t, resume(t.Context(), node.Shim))
	assert.NilError(t, r.look(t.Context()))
	reply, err := suite.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: r.container})
	assert.NilError(t, err)
	if s := reply.Status; s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.ExitCode != 137 || s.Reason != "Error" {
		t.Errorf("the container is %s, code %d, reason %q", s.State, s.ExitCode, s.Reason)
	}
}

// atOnce bounds what may wait for no daemon that hangs: it is less than those are waited for.
const atOnce = 5 * time.Second

// answers asks all that has to be known of the guests that run. No answer may take long.
func answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	for _, g := range suite.steady {
		id := g.container
		s, err := suite.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
		if err != nil {
			return err
		}
		if s.Status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			return fmt.Errorf("guest %s is %s", g.name, s.Status.State)
		}
		stats, err := suite.cri.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
		if err != nil {
			return err
		}
		if stats.Stats.GetMemory().GetUsageBytes().GetValue() == 0 {
			return fmt.Errorf("guest %s uses no memory: %v", g.name, stats)
		}
	}
	return nil
}

// lists returns an error unless the guests that run are in the lists.
func lists(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	list, err := suite.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{State: running}})
	if err != nil {
		return err
	}
	if n := len(list.Containers); n < len(suite.steady) {
		return fmt.Errorf("%d containers are listed as running", n)
	}
	stats, err := suite.cri.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return err
	}
	if n := len(stats.Stats); n < len(suite.steady) {
		return fmt.Errorf("the statistics are of %d containers", n)
	}
	return nil
}

func TestWithoutLibvirtd(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started-1]...)
	r.loses(t, node.Libvirtd)
	t.Cleanup(func() { assert.NilError(t, resume(context.WithoutCancel(t.Context()), node.Libvirtd)) })
	assert.NilError(t, answers(t.Context()))
	assert.NilError(t, lists(t.Context()))
	err := life[started-1].do(t.Context(), r.pod)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "libvirtd is not available") {
		t.Errorf("start without libvirtd: %v", err)
	}
	reply, err := suite.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: r.container})
	assert.NilError(t, err)
	if s := reply.Status; s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.Reason != "StartError" {
		t.Errorf("the container is %s, reason %q", s.State, s.Reason)
	}
	assert.NilError(t, answers(t.Context()))
}
