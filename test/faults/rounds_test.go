//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// TestRounds breaks the node again and again, each time by a different plan.
func TestRounds(t *testing.T) {
	// A test before may have ended right after it brought libvirtd up again.
	assert.NilError(t, converge(t.Context(), sameSecrets(suite.secrets)))
	before, err := suite.Leftovers(t.Context())
	assert.NilError(t, err)
	size, err := shimSize(t.Context())
	assert.NilError(t, err)
	for i := range uint64(*rounds) {
		p := newPlan(*seed + i)
		t.Run(fmt.Sprint(p.seed), func(t *testing.T) {
			r := &round{plan: p, before: before, size: size}
			err := r.run(t.Context())
			if err == nil {
				t.Logf("%s; it ended after %s: %v", p, r.took.Round(time.Millisecond), r.callErr)
				return
			}
			t.Errorf("%s\nagain: make test-faults ROUNDS=1 SEED=%d\nthe call ended after %s: %v\n%v\n%s",
				p, p.seed, r.took.Round(time.Millisecond), r.callErr, err, suite.LogTail(node.Shim, 25))
			if now, err := suite.Leftovers(t.Context()); err == nil {
				before = now // each of the following rounds shows what is its own
			}
		})
	}
}

// round is a plan that is carried out.
type round struct {
	plan
	*pod
	before node.Census
	size   size

	begun   time.Time
	took    time.Duration
	callErr error     // of the call with the faults
	qemuEnd time.Time // when the pod's QEMU was killed
	givenUp bool      // the client did not wait for the call's end
}

// bound is how long any call may take, whatever happens to the node.
const bound = 40 * time.Second

func (r *round) run(ctx context.Context) (err error) {
	r.begun = time.Now()
	if r.pod, err = newPod(fmt.Sprintf("round-%d", r.seed), suite.halt, 64<<20); err != nil {
		return err
	}
	if r.iscsi {
		r.overISCSI()
	}
	for _, c := range r.calls[:r.at] {
		if err := c.do(ctx, r.pod); err != nil {
			return errors.Join(fmt.Errorf("%s, before the fault: %w", c.name, err), r.remove(ctx))
		}
	}
	down, err := r.breakCall(ctx)
	if err := errors.Join(err, resume(ctx, down...)); err != nil {
		return err
	}
	// What one step finds wrong must not keep the pod from being removed.
	errs := []error{r.look(ctx), r.remove(ctx)}
	for _, ask := range []func(context.Context) error{asBefore(r.before), sameSecrets(suite.secrets), noGrowth(r.size), discreet} {
		errs = append(errs, converge(ctx, ask))
	}
	return errors.Join(errs...)
}

// breakCall makes the call with the faults, and returns what is down then.
func (r *round) breakCall(ctx context.Context) (down []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*bound)
	defer cancel()
	if r.full != "" {
		if err := fill(r.full, r.room); err != nil {
			return nil, fmt.Errorf("fill the disk: %w", err)
		}
	}
	own := *r.pod // what the call is writing must not be read
	begun := time.Now()
	var call sync.WaitGroup
	call.Go(func() {
		r.callErr = r.calls[r.at].do(ctx, r.pod)
		r.took = time.Since(begun)
	})
	var errs []error
	for _, k := range r.kills {
		time.Sleep(time.Until(begun.Add(k.after)))
		isDown, err := r.kill(ctx, k.victim, own)
		if isDown {
			down = append(down, k.victim)
		}
		errs = append(errs, err)
	}
	call.Wait()
	if r.took > bound {
		errs = append(errs, fmt.Errorf("%s took %s", r.calls[r.at].name, r.took))
	}
	if r.full != "" {
		errs = append(errs, empty())
	}
	return down, errors.Join(errs...)
}

// kill kills a victim, and reports whether that is a component that must be started again. own is the
// pod as it was before the call: without a container, neither dnsmasq nor view come of it.
func (r *round) kill(ctx context.Context, victim string, own pod) (down bool, err error) {
	switch victim {
	case ownQEMU:
		if killAll(r.domain()) {
			r.qemuEnd = time.Now()
		}
	case ownDnsmasq:
		if own.container != "" {
			killAll(own.dhcp())
		}
	case ownVirtiofsd:
		killAll(own.virtiofsd()...)
	case ownView:
		if own.container != "" {
			return false, own.killView(ctx)
		}
	case steadyView:
		return false, suite.served.killView(ctx)
	case steadyDnsmasq:
		killAll(suite.steady[r.seed%uint64(len(suite.steady))].dhcp())
	default:
		return true, suite.Kill(ctx, victim, syscall.SIGKILL)
	}
	return false, nil
}

// look waits until steady guests live and the status of the pod's containers is true.
func (r *round) look(ctx context.Context) error {
	for _, g := range suite.steady {
		if err := converge(ctx, g.lives); err != nil {
			return err
		}
	}
	if err := converge(ctx, suite.served.keeps); err != nil {
		return err
	}
	return converge(ctx, r.isTrue)
}

// isTrue compares the status of the pod's containers with the processes that exist.
func (r *round) isTrue(ctx context.Context) error {
	list, err := r.containers(ctx)
	if err != nil {
		return err
	}
	running := false
	for _, id := range list {
		reply, err := suite.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return err
		}
		s := reply.Status
		switch s.State {
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			running = true
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			if end := time.Unix(0, s.FinishedAt); end.Before(r.begun) || end.After(time.Now()) || s.Reason == "" || s.ExitCode == 0 {
				return fmt.Errorf("container %s ended at %s with %d, %q", id, end, s.ExitCode, s.Reason)
			}
		case runtimeapi.ContainerState_CONTAINER_CREATED:
		default:
			return fmt.Errorf("container %s is %s", id, s.State)
		}
	}
	if has := runs(r.domain()); has != running {
		return fmt.Errorf("a container is reported as running: %t; QEMU runs: %t", running, has)
	}
	return nil
}

// containers are those of the pod, whether the call that made them answered or not.
func (r *round) containers(ctx context.Context) (ids []string, err error) {
	reply, err := suite.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: r.selector()},
	})
	for _, c := range reply.GetContainers() {
		ids = append(ids, c.Id)
	}
	return ids, err
}

func (r *round) selector() map[string]string {
	return map[string]string{"io.kubernetes.pod.uid": r.config.Metadata.Uid}
}

// remove has the pod removed as a kubelet does: again and again, until there is none.
func (r *round) remove(ctx context.Context) error {
	if err := converge(ctx, r.removeOnce); err != nil {
		return fmt.Errorf("remove the pod: %w", err)
	}
	if err := r.tidy(ctx); err != nil {
		return err
	}
	return removeCgroups(ctx, r.config.Linux.CgroupParent, r.container)
}

func (r *round) removeOnce(ctx context.Context) error {
	if known, err := r.containers(ctx); err != nil {
		return err
	} else if len(known) > 0 {
		r.container = known[0] // its call may not have answered
	}
	filter := &runtimeapi.PodSandboxFilter{LabelSelector: r.selector()}
	reply, err := suite.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return err
	}
	ids := []string{r.id}
	for _, s := range reply.Items {
		ids = append(ids, s.Id)
	}
	slices.Sort(ids)
	var errs []error
	for _, id := range slices.Compact(ids) {
		if id == "" {
			continue
		}
		p := &pod{id: id, container: r.container}
		for _, c := range r.calls[ending:] {
			if c.ofContainer && p.container == "" {
				continue
			}
			if err := c.do(ctx, p); err != nil && status.Code(err) != codes.NotFound {
				errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	left, err := r.containers(ctx)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("containers %v are left", left)
	}
	return err
}
