package badinput

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/hold"
	"github.com/nodevirt/nodevirt/test/node"
)

// holdable is a program that runs a tool, and can be held.
func holdable(t *testing.T, dir, tool string) (path string) {
	t.Helper()
	path, err := hold.Program(dir, tool)
	assert.NilError(t, err)
	return path
}

// testCallerGone gives calls up while the shim is at work for them.
func (s *suite) testCallerGone(t *testing.T) {
	before := s.census(t)
	p := s.run(t, "pod", nil)
	withPod := s.census(t)
	t.Run("start", func(t *testing.T) {
		id := s.created(t, p)
		s.giveUp(t, "dnsmasq", func(ctx context.Context) error { return s.startWithin(ctx, id) })
		s.stop(t, id)
		reply, err := s.pods.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		assert.NilError(t, err)
		if got := reply.GetStatus(); got.Reason != "StartError" || !strings.Contains(got.Message, "context canceled") {
			t.Errorf("status of a start that was given up: %v", got)
		}
		s.removeContainer(t, id)
		s.wantNothingSince(t, withPod)
	})
	// Wherever the call is by then.
	for _, ms := range []int{1, 5, 10, 20, 40, 60} {
		t.Run(fmt.Sprintf("create, %d ms", ms), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
			defer cancel()
			if err := s.createWithin(ctx, p); err != nil && status.Code(err) != codes.DeadlineExceeded {
				t.Error(err)
			}
			s.awaitNothingSince(t, withPod)
		})
	}
	for _, ms := range []int{1, 30, 60, 90, 120, 150, 200, 250} {
		t.Run(fmt.Sprintf("start, %d ms", ms), func(t *testing.T) {
			id := s.created(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
			defer cancel()
			if err := s.startWithin(ctx, id); err != nil && status.Code(err) != codes.DeadlineExceeded {
				t.Error(err)
			}
			s.stop(t, id)
			s.removeContainer(t, id)
			s.wantNothingSince(t, withPod)
		})
	}
	s.remove(t, p)
	s.wantNothingSince(t, before)
}

// giveUp makes a call, and cancels it when the shim waits for a tool.
func (s *suite) giveUp(t *testing.T, tool string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release, done := s.held(t, tool, func() error { return call(ctx) })
	defer release()
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("the call that was given up: %v", err)
	}
}

// held makes a call, and returns when the shim waits for a tool in it. Release lets the tool go on;
// done gets what the call answers.
func (s *suite) held(t *testing.T, tool string, call func() error) (release func(), done <-chan error) {
	t.Helper()
	return hold.Held(t, filepath.Join(s.tools, tool), call)
}

func (s *suite) created(t *testing.T, p *pod) (id string) {
	t.Helper()
	id, err := s.create(t, p, newContainer(s.disk, nil))
	assert.NilError(t, err)
	return id
}

func (s *suite) createWithin(ctx context.Context, p *pod) error {
	_, err := s.pods.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, Config: newContainer(s.disk, nil), SandboxConfig: p.config,
	})
	return err
}

func (s *suite) startWithin(ctx context.Context, id string) error {
	_, err := s.pods.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// stop returns when no call is at work on the container.
func (s *suite) stop(t *testing.T, id string) {
	t.Helper()
	_, err := s.pods.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id})
	assert.NilError(t, err)
}

// awaitNothingSince waits for the shim, which cleans up when its caller has gone. The test must
// remove a container that was complete when its caller went away.
func (s *suite) awaitNothingSince(t *testing.T, before node.Census) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		reply, err := s.pods.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		assert.NilError(t, err)
		for _, c := range reply.GetContainers() {
			s.removeContainer(t, c.Id)
		}
		if len(s.census(t).Diff(before)) == 0 {
			return
		}
	}
	s.wantNothingSince(t, before)
}
