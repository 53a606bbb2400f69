package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protojson"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Find returns the sandbox of a VM that runs and whose record is lost. It asks containerd, and needs no record: group
// is the cgroup of the VM's pod, domain the name of the VM's domain, which has the pod's. The group decides, since a
// guest that has taken over its QEMU can change the name. Of a pod's sandboxes it returns the one that is ready.
func (s *Sandboxes) Find(ctx context.Context, group, domain string) (record.Sandbox, bool, error) {
	all, err := s.list(ctx)
	if err != nil {
		return record.Sandbox{}, false, err
	}
	var best record.Sandbox
	found, ready := false, false
	for _, one := range all {
		config, err := s.config(ctx, one.GetId())
		if err != nil {
			return record.Sandbox{}, false, err
		}
		if config == nil || !holds(config, group, domain) {
			continue
		}
		if is := one.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY; !found || is && !ready {
			best = record.Sandbox{ID: one.GetId()}
			best.Config.Value = config
			found, ready = true, is
		}
	}
	return best, found, nil
}

// holds reports whether a pod's sandbox is that of a VM.
func holds(config *runtimeapi.PodSandboxConfig, group, domain string) bool {
	if parent := config.GetLinux().GetCgroupParent(); parent != "" && group != "" {
		return path.Base(parent) == path.Base(group) // the systemd driver names the slice alone
	}
	rest, _, _ := cutLast(domain, "_")
	namespace, name, _ := strings.Cut(rest, "_")
	meta := config.GetMetadata()
	return name != "" && namespace == meta.GetNamespace() && name == meta.GetName()[:min(len(meta.GetName()), maxName)]
}

// maxName is how much of a pod's name is in its domain's name.
const maxName = 96

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// config asks containerd for the config of a sandbox; nil for one that is gone, or whose config containerd does not
// report.
func (s *Sandboxes) config(ctx context.Context, id string) (*runtimeapi.PodSandboxConfig, error) {
	reply, err := s.pods.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask containerd for sandbox %s: %w", id, err)
	}
	var info struct {
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal([]byte(reply.GetInfo()["info"]), &info); err != nil || len(info.Config) == 0 {
		return nil, nil //nolint:nilerr // one without a config is not a VM's
	}
	config := &runtimeapi.PodSandboxConfig{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(info.Config, config); err != nil {
		return nil, nil //nolint:nilerr // as above
	}
	return config, nil
}
