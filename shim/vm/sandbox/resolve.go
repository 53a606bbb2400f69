package sandbox

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
)

// resolvePause is the time between two questions to a containerd that does not answer.
var resolvePause = background.Fixed(time.Second)

// Resolve finds out, in the background, whether containerd made a sandbox for
// which the shim has no answer. A shim that ends before leaves that to the next one.
func (s *Sandboxes) Resolve(key string) {
	s.tasks.Run(func(ctx context.Context) {
		if s.resolved(ctx, key) {
			return
		}
		s.tasks.Retry(resolvePause, nil, func(ctx context.Context) bool { return s.resolved(ctx, key) })
	})
}

func (s *Sandboxes) resolved(ctx context.Context, key string) bool {
	err := s.resolve(ctx, key)
	if err != nil {
		s.log.Debug("asking containerd for a sandbox failed", "error", err)
	}
	return err == nil
}

func (s *Sandboxes) resolve(ctx context.Context, key string) error {
	found, err := s.list(ctx)
	if err != nil {
		return err
	}
	intents, err := s.intents.Intents()
	if err != nil {
		return err
	}
	r, ok := intents[key]
	if !ok {
		return nil
	}
	if err := s.fulfil(key, r, found); err != nil {
		return err
	}
	return s.forgetRemoved(ctx, r, found)
}

// forgetRemoved forgets a sandbox that an intent led to, and that was removed
// before its record was written. A removal that comes later knows the sandbox.
func (s *Sandboxes) forgetRemoved(ctx context.Context, r record.Sandbox, found []*runtimeapi.PodSandbox) error {
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	for _, one := range found {
		there := func(now *runtimeapi.PodSandbox) bool { return now.GetId() == one.GetId() }
		if !proto.Equal(one.GetMetadata(), r.Config.Value.GetMetadata()) || slices.ContainsFunc(all, there) {
			continue
		}
		if err := s.Forget(one.GetId()); err != nil {
			return err
		}
	}
	return nil
}

// fulfil records the sandbox that has an intent's metadata, which name one
// attempt of one pod, and removes the intent.
func (s *Sandboxes) fulfil(key string, r record.Sandbox, sandboxes []*runtimeapi.PodSandbox) error {
	for _, one := range sandboxes {
		if _, known := s.Handler(one.GetId()); known || !proto.Equal(one.GetMetadata(), r.Config.Value.GetMetadata()) {
			continue
		}
		s.log.Info("found a sandbox whose creation was cut off", "sandbox", one.GetId())
		if err := s.Add(key, record.Sandbox{ID: one.GetId(), Handler: r.Handler, Config: r.Config}); err != nil {
			return err
		}
	}
	return s.Drop(key)
}
