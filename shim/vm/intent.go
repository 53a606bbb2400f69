package vm

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// IntendSandbox records that a sandbox of the VM handler is about to be made, so
// that it is known for a VM's whatever becomes of containerd's answer, and of
// this shim. The key is for AddSandbox, DropIntent or ResolveIntent.
func (m *Manager) IntendSandbox(handler string, config *runtimeapi.PodSandboxConfig) (key string, err error) {
	r := record.Sandbox{Handler: handler, CreatedAt: time.Now()}
	r.Config.Value = config
	key = newID()
	return key, m.Records.PutIntent(key, r)
}

// DropIntent forgets an intent: containerd said that it made no sandbox.
func (m *Manager) DropIntent(key string) error { return m.Records.RemoveIntent(key) }

// resolveAgain is how long containerd is left alone before it is asked again.
const resolveAgain = time.Second

// ResolveIntent finds out, in the background, whether containerd made a sandbox
// whose answer did not come.
func (m *Manager) ResolveIntent(key string) {
	m.tasks.run(func(ctx context.Context) {
		for {
			err := m.resolve(ctx, key)
			if err == nil || ctx.Err() != nil {
				return // a new shim does it otherwise
			}
			m.Logger.Debug("asking containerd for a sandbox failed", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(resolveAgain):
			}
		}
	})
}

func (m *Manager) resolve(ctx context.Context, key string) error {
	found, err := m.listSandboxes(ctx)
	if err != nil {
		return err
	}
	intents, err := m.Records.Intents()
	if err != nil {
		return err
	}
	r, ok := intents[key]
	if !ok {
		return nil
	}
	if err := m.fulfil(key, r, found); err != nil {
		return err
	}
	return m.forgetGone(ctx, r, found)
}

// forgetGone forgets what was found by an intent and removed before it was
// recorded. A removal that comes later knows of it.
func (m *Manager) forgetGone(ctx context.Context, r record.Sandbox, found []*runtimeapi.PodSandbox) error {
	all, err := m.listSandboxes(ctx)
	if err != nil {
		return err
	}
	for _, s := range found {
		there := func(now *runtimeapi.PodSandbox) bool { return now.GetId() == s.GetId() }
		if !proto.Equal(s.GetMetadata(), r.Config.Value.GetMetadata()) || slices.ContainsFunc(all, there) {
			continue
		}
		if err := m.ForgetSandbox(s.GetId()); err != nil {
			return err
		}
	}
	return nil
}

// adopt finds the sandboxes that a shim which ended in the middle of a call had
// intended.
func (m *Manager) adopt(sandboxes []*runtimeapi.PodSandbox) error {
	intents, err := m.Records.Intents()
	if err != nil {
		return err
	}
	for key, r := range intents {
		if err := m.fulfil(key, r, sandboxes); err != nil {
			// A full disk must not keep the shim from its running machines.
			m.Logger.Error("recording a sandbox that was being made failed, trying on", "error", err)
			m.ResolveIntent(key)
		}
	}
	return nil
}

// fulfil makes the sandbox with an intent's metadata, which is one pod's attempt,
// a VM's, and forgets the intent.
func (m *Manager) fulfil(key string, r record.Sandbox, sandboxes []*runtimeapi.PodSandbox) error {
	for _, s := range sandboxes {
		if _, known := m.Handler(s.GetId()); known || !proto.Equal(s.GetMetadata(), r.Config.Value.GetMetadata()) {
			continue
		}
		m.Logger.Info("a sandbox that was being made is found", "sandbox", s.GetId())
		if err := m.AddSandbox(key, s.GetId(), r.Handler, r.Config.Value); err != nil {
			return err
		}
	}
	return m.DropIntent(key)
}
