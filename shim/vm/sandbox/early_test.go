package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ctrsandbox "github.com/containerd/containerd/v2/core/sandbox"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// makings are containerd's sandboxes as it writes them before it calls CNI plug-ins.
type makings struct {
	mu   sync.Mutex
	all  []ctrsandbox.Sandbox
	fail error
}

func (m *makings) List(context.Context, ...string) ([]ctrsandbox.Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.all), m.fail
}

// add adds a sandbox; one without a network namespace has just been begun.
func (m *makings) add(t *testing.T, pod *runtimeapi.PodSandboxMetadata, netns string) {
	t.Helper()
	one := ctrsandbox.Sandbox{ID: pod.GetName()}
	if netns != "" {
		text, err := json.Marshal(map[string]any{
			"Version":  "v1",
			"Metadata": map[string]any{"ID": pod.GetName(), "NetNSPath": netns, "Config": &runtimeapi.PodSandboxConfig{Metadata: pod}},
		})
		must(t, err)
		must(t, one.AddExtension(metadataExtension, &anypb.Any{Value: text}))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, one)
}

// TestMaking: a pod that waits for a guest with its address is silent as soon as its network namespace
// is there.
func TestMaking(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		all := &makings{}
		n.unfinished = all
		waits := pod("waits")
		waits.Annotations = map[string]string{
			vmspec.AnnotationMigration: "m1", "kubevirt.io/allow-pod-bridge-network-live-migration": "", vmspec.AnnotationVMI: `{"domain": {"devices": {}}}`,
		}
		before := pod("waits").GetMetadata()
		before.Attempt = 7
		all.add(t, before, "/run/netns/before")
		all.add(t, pod("other").GetMetadata(), "/run/netns/other")
		all.add(t, waits.GetMetadata(), "")

		n.Making(t.Context(), pod("other"))()
		end := n.Making(t.Context(), waits)
		time.Sleep(time.Second)
		if len(n.silenced) > 0 {
			t.Errorf("silenced %v", n.silenced)
		}
		all.add(t, waits.GetMetadata(), "/run/netns/waits")
		time.Sleep(2 * lookEvery)
		synctest.Wait()
		if !slices.Equal(n.silenced, []string{"/run/netns/waits eth0"}) {
			t.Errorf("silenced %v", n.silenced)
		}
		end()
		n.Making(t.Context(), waits)() // containerd has answered before it was looked for
		all.fail = errors.New("containerd is away")
		end = n.Making(t.Context(), waits)
		time.Sleep(time.Second)
		end()
		if len(n.silenced) != 1 {
			t.Errorf("silenced %v", n.silenced)
		}
	})
}
