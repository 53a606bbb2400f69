package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/nodeproblems"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// intents records sandboxes that containerd is asked for; [record.Store] does.
type intents interface {
	PutIntent(key string, r record.Sandbox) error
	RemoveIntent(key string) error
	Intents() (map[string]record.Sandbox, error)
	// EndedOf returns how the guest of a pod has ended here, whose container is removed.
	EndedOf(uid string) (_ record.Ended, found bool, _ error)
}

// pods is what the shim asks containerd's CRI.
type pods interface {
	ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error)
	PodSandboxStatus(ctx context.Context, in *runtimeapi.PodSandboxStatusRequest, opts ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error)
}

// conditions reports to the API server; package report's Conditions.
type conditions interface {
	// RefusePod reports why a pod can hold no VM.
	RefusePod(config *runtimeapi.PodSandboxConfig, err error)
	// Departed reports that a migration has taken the guest of a pod whose container is removed.
	Departed(podstatus.Pod, record.Ended)
	// ForgetPod ends the reports on a pod.
	ForgetPod(config *runtimeapi.PodSandboxConfig)
}

// Sandboxes knows which pod sandboxes are VMs'.
type Sandboxes struct {
	table      *table.Table
	intents    intents
	pods       pods
	unfinished Unfinished
	conditions conditions
	tasks      *background.Tasks
	silence    func(ctx context.Context, netns string, interfaces ...string) error
	ready      func() error
	problems   problems
	log        *slog.Logger
}

// problems are the node's; [nodeproblems.Problems].
type problems interface {
	Set(r nodeproblems.Reason, err error)
}

// Options are what Sandboxes works with. All fields are needed.
type Options struct {
	Table   *table.Table
	Intents intents
	Pods    pods
	// Unfinished lists the sandboxes that containerd is making, too.
	Unfinished Unfinished
	Conditions conditions
	Tasks      *background.Tasks
	// Silence is netsetup's: it silences the network stack of a pod on some interfaces. Ready makes its next call short.
	Silence func(ctx context.Context, netns string, interfaces ...string) error
	Ready   func() error
	// Problems are those of the node, which its administrator must solve.
	Problems problems
	Logger   *slog.Logger
}

// New returns Sandboxes.
func New(o Options) *Sandboxes {
	return &Sandboxes{table: o.Table, intents: o.Intents, pods: o.Pods, unfinished: o.Unfinished, conditions: o.Conditions, tasks: o.Tasks, silence: o.Silence, ready: o.Ready, problems: o.Problems, log: o.Logger}
}

// Check refuses a pod that can't hold a VM.
func (s *Sandboxes) Check(config *runtimeapi.PodSandboxConfig) error {
	end, ran := s.ended(config)
	err := vmspec.ValidateSandbox(config)
	if ran {
		err = errors.Join(err, ranHere(end))
	}
	if err == nil {
		return nil
	}
	if pod, ok := podstatus.PodOf(config); ok && ran && end.Departed() {
		s.conditions.Departed(pod, end)
	} else {
		s.conditions.RefusePod(config, err)
	}
	return fmt.Errorf("pod %s/%s: %w: %w",
		config.GetMetadata().GetNamespace(), config.GetMetadata().GetName(), vmerrors.ErrInvalid, err)
}

// ended returns how the guest of a pod has ended here whose container is removed; found is false for none.
func (s *Sandboxes) ended(config *runtimeapi.PodSandboxConfig) (_ record.Ended, found bool) {
	end, found, err := s.intents.EndedOf(config.GetMetadata().GetUid())
	if err != nil {
		s.log.Warn("reading how a pod's guest has ended failed", "pod", config.GetMetadata().GetName(), "error", err)
	}
	return end, found && err == nil
}

// ranHere is why a pod does not start whose guest has run here: the controller makes another pod for each start. An API
// server that was restored from a backup has such pods.
func ranHere(end record.Ended) error {
	text := end.Reason
	if end.Message != "" {
		text += ": " + end.Message
	}
	return fmt.Errorf("its guest has run here until %s (%s), and may run elsewhere: a pod starts once; was etcd restored from a backup? See \"Restore etcd\" in the documentation",
		end.At.Format(time.RFC3339), text)
}

// Intend records that the caller is about to ask containerd for a sandbox of the
// VM handler. So the sandbox counts as a VM's whatever happens to containerd's
// answer, or to the shim. The key is for Add, Drop or Resolve.
func (s *Sandboxes) Intend(handler string, config *runtimeapi.PodSandboxConfig) (key string, err error) {
	r := record.Sandbox{Handler: handler, CreatedAt: time.Now()}
	r.Config.Value = config
	key = record.NewID()
	return key, s.intents.PutIntent(key, r)
}

// Drop removes an intent: containerd reported that it made no sandbox.
func (s *Sandboxes) Drop(key string) error { return s.intents.RemoveIntent(key) }

// Prepare silences the interfaces of a new sandbox that waits for a guest which has their addresses: until the
// guest comes, its source's pod alone sends and answers with these.
func (s *Sandboxes) Prepare(ctx context.Context, id string, config *runtimeapi.PodSandboxConfig) error {
	interfaces := waiting(config)
	if len(interfaces) == 0 {
		return nil
	}
	netns, err := s.NetworkNamespace(ctx, id)
	if err != nil {
		return err
	}
	return s.silence(ctx, netns, interfaces...)
}

// Add records that a sandbox, which containerd made as it was intended, is a VM's. It
// sets the time of its creation.
func (s *Sandboxes) Add(key string, r record.Sandbox) error {
	r.CreatedAt = time.Now()
	if err := s.table.AddSandbox(r); err != nil {
		return err
	}
	return s.intents.RemoveIntent(key)
}

// Handler returns the runtime handler that a sandbox was asked for with, if it
// is a VM's. The id is whole.
func (s *Sandboxes) Handler(id string) (handler string, ok bool) {
	r, ok := s.table.Sandbox(id)
	return r.Handler, ok
}

// Any reports whether any sandbox is a VM's; with an id, which may be shortened,
// whether the id of one begins with it.
func (s *Sandboxes) Any(id string) bool { return len(s.table.SandboxesWith(id)) > 0 }

// Forget removes the record of a sandbox that containerd has removed.
func (s *Sandboxes) Forget(id string) error {
	return s.table.ForgetSandbox(id, func(r record.Sandbox) { s.conditions.ForgetPod(r.Config.Value) })
}

// list returns all of containerd's sandboxes.
func (s *Sandboxes) list(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	reply, err := s.pods.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containerd's sandboxes: %w", err)
	}
	return reply.GetItems(), nil
}
