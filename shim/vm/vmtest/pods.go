package vmtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pods is a fake of containerd's CRI for pod sandboxes.
type Pods struct {
	script *Script

	mu  sync.Mutex
	all []*runtimeapi.PodSandbox
	// configs are those of sandboxes in verbose statuses.
	configs map[string]*runtimeapi.PodSandboxConfig
}

// NewPods returns a containerd without pods.
func NewPods(s *Script) *Pods { return &Pods{script: s} }

// Add adds a sandbox that is ready.
func (p *Pods) Add(id string, meta *runtimeapi.PodSandboxMetadata) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, &runtimeapi.PodSandbox{
		Id: id, Metadata: meta, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(),
	})
}

// SetConfig has a sandbox's verbose status report its config.
func (p *Pods) SetConfig(id string, config *runtimeapi.PodSandboxConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.configs == nil {
		p.configs = map[string]*runtimeapi.PodSandboxConfig{}
	}
	p.configs[id] = config
}

// Stop makes a sandbox not ready.
func (p *Pods) Stop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.GetId() == id {
			one.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
	}
}

// Remove removes a sandbox.
func (p *Pods) Remove(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(one *runtimeapi.PodSandbox) bool { return one.GetId() == id })
}

// ListPodSandbox implements CRI's.
func (p *Pods) ListPodSandbox(ctx context.Context, _ *runtimeapi.ListPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	if err := p.script.enter(ctx, "Pods.List"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &runtimeapi.ListPodSandboxResponse{Items: slices.Clone(p.all)}, nil
}

// PodSandboxStatus implements CRI's.
func (p *Pods) PodSandboxStatus(ctx context.Context, in *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := p.script.enter(ctx, "Pods.Status"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.GetId() == in.GetPodSandboxId() {
			config, err := json.Marshal(p.configs[one.GetId()])
			if err != nil {
				return nil, err
			}
			info := fmt.Sprintf(`{"runtimeSpec": {"linux": {"namespaces": [{"type": "network", "path": "/run/netns/%s"}]}}, "config": %s}`, one.GetId(), config)
			return &runtimeapi.PodSandboxStatusResponse{
				Status: &runtimeapi.PodSandboxStatus{Id: one.GetId(), State: one.GetState()},
				Info:   map[string]string{"info": info},
			}, nil
		}
	}
	return nil, fmt.Errorf("sandbox %q: not found", in.GetPodSandboxId())
}
