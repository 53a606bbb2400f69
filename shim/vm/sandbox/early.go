package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	ctrsandbox "github.com/containerd/containerd/v2/core/sandbox"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Unfinished lists containerd's sandboxes, also those that it makes at the moment; containerd's
// sandbox.Store does.
type Unfinished interface {
	List(ctx context.Context, filters ...string) ([]ctrsandbox.Sandbox, error)
}

// metadataExtension is containerd's name of a sandbox's CRI metadata. containerd writes them before
// it calls CNI plug-ins.
const metadataExtension = "metadata"

// lookEvery is how often a sandbox that is being made is looked for. A CNI plug-in needs longer to
// give a pod its address.
const lookEvery = 5 * time.Millisecond

// waiting returns the interfaces of a pod that waits for a guest which has their addresses; none for another pod.
func waiting(config *runtimeapi.PodSandboxConfig) []string {
	given := config.GetAnnotations()
	if vmspec.Migration(given) == "" {
		return nil
	}
	return vmspec.GuestInterfaces(given)
}

// Making silences the network of a sandbox that containerd is about to make, as Prepare does for one
// that is made: CNI plug-ins have a pod announce its address, and its stack would answer in the
// guest's place. The caller calls end when containerd has answered.
func (s *Sandboxes) Making(ctx context.Context, config *runtimeapi.PodSandboxConfig) (end func()) {
	interfaces := waiting(config)
	if len(interfaces) == 0 {
		return func() {}
	}
	warn := func(err error) { // Prepare tries again, and reports
		s.log.Warn("cannot silence a pod before it has its address", "pod", config.GetMetadata().GetName(), "error", err)
	}
	if err := s.ready(); err != nil {
		warn(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.silenceUnfinished(ctx, config.GetMetadata(), interfaces); err != nil && ctx.Err() == nil {
			warn(err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// silenceUnfinished waits for the network namespace of a pod's sandbox, and silences it.
func (s *Sandboxes) silenceUnfinished(ctx context.Context, pod *runtimeapi.PodSandboxMetadata, interfaces []string) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		all, err := s.unfinished.List(ctx)
		if err != nil {
			return fmt.Errorf("list containerd's sandboxes: %w", err)
		}
		for _, one := range all {
			netns, err := namespaceOf(one, pod)
			if err != nil {
				return fmt.Errorf("sandbox %s: %w", one.ID, err)
			}
			if netns != "" {
				return s.silence(ctx, netns, interfaces...)
			}
		}
	}
}

// namespaceOf returns the path of a sandbox's network namespace if the sandbox is this attempt of a
// pod's and has one, or "".
func namespaceOf(one ctrsandbox.Sandbox, pod *runtimeapi.PodSandboxMetadata) (string, error) {
	extension := one.Extensions[metadataExtension]
	if extension == nil {
		return "", nil // containerd has just begun
	}
	var made struct {
		Metadata struct {
			NetNSPath string
			Config    struct {
				Metadata *runtimeapi.PodSandboxMetadata
			}
		}
	}
	if err := json.Unmarshal(extension.GetValue(), &made); err != nil {
		return "", fmt.Errorf("read containerd's metadata: %w", err)
	}
	of := made.Metadata.Config.Metadata
	if of.GetUid() != pod.GetUid() || of.GetAttempt() != pod.GetAttempt() || of.GetName() != pod.GetName() || of.GetNamespace() != pod.GetNamespace() {
		return "", nil
	}
	return made.Metadata.NetNSPath, nil
}
