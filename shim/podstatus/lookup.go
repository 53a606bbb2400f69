package podstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/kubelet"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// The kubelet sets sourceAnnotation on each pod that it runs. Pods of the API
// server have sourceAPI; others have no status that could be written.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	sourceAPI        = "api"
)

// PodOf returns the pod of a sandbox. ok is false for pods that no API server knows.
func PodOf(p *runtimeapi.PodSandboxConfig) (_ Pod, ok bool) {
	meta := p.GetMetadata()
	return Pod{
		Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: meta.GetUid(), Attempt: meta.GetAttempt(),
	}, p.GetAnnotations()[sourceAnnotation] == sourceAPI && meta.GetUid() != ""
}

// Lookup asks the API server whether it still has pods. Its methods may be called concurrently.
type Lookup struct {
	mu  sync.Mutex
	api *kubelet.Client // nil: nothing is asked
}

// NewLookup returns a Lookup with a kubeconfig, which need not exist yet. With an empty path no pod is gone.
func NewLookup(kubeconfig string) *Lookup {
	if kubeconfig == "" {
		return new(Lookup)
	}
	return &Lookup{api: kubelet.New(kubeconfig)}
}

// Gone reports whether the API server has no such pod on this node, but maybe another one of its name, or whether the
// controller has released it. An error proves nothing. The answer is as new as the API server's data: the list is read
// from no cache. A node may list its own pods, but not read one that does not exist.
func (p *Lookup) Gone(ctx context.Context, pod Pod) (bool, error) {
	if p.api == nil {
		return false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	node, err := p.api.NodeName(ctx)
	if err != nil {
		return false, err
	}
	body, err := p.api.Do(ctx, kubelet.Request{
		Method: http.MethodGet, Path: []string{"api", "v1", "namespaces", pod.Namespace, "pods"},
		Query: url.Values{"fieldSelector": {"metadata.name=" + pod.Name + ",spec.nodeName=" + node}}.Encode(),
	})
	if err != nil {
		return false, fmt.Errorf("look for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	var list struct {
		Kind     string `json:"kind"`
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []struct {
			Metadata struct {
				UID         string            `json:"uid"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return false, fmt.Errorf("look for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if list.Kind != "PodList" || list.Metadata.ResourceVersion == "" {
		return false, fmt.Errorf("look for pod %s/%s: the answer is no list of pods", pod.Namespace, pod.Name)
	}
	for _, item := range list.Items {
		if _, released := item.Metadata.Annotations[condition.AnnotationReleased]; item.Metadata.UID == pod.UID && !released {
			return false, nil
		}
	}
	return true, nil
}
