package podstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/nodevirt/nodevirt/shim/kubelet"
)

// client reads and writes the statuses of pods.
type client struct{ api *kubelet.Client }

// status is the part of a pod that a client reads and writes.
type status struct {
	Metadata struct {
		Namespace       string `json:"namespace,omitempty"`
		Name            string `json:"name,omitempty"`
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
	Status struct {
		Conditions []Condition `json:"conditions"`
	} `json:"status"`
}

func path(pod Pod) []string {
	return []string{"api", "v1", "namespaces", pod.Namespace, "pods", pod.Name}
}

// conditions returns the conditions in a pod's status, and the pod's version.
func (c *client) conditions(ctx context.Context, pod Pod) ([]Condition, string, error) {
	body, err := c.api.Do(ctx, kubelet.Request{Method: http.MethodGet, Path: path(pod)})
	if err != nil {
		return nil, "", err
	}
	var answer status
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, "", fmt.Errorf("read pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if answer.Metadata.UID != pod.UID {
		return nil, "", kubelet.ErrGone
	}
	return answer.Status.Conditions, answer.Metadata.ResourceVersion, nil
}

// patch writes conditions, leaves other conditions unchanged, and returns the pod's version. The API server
// merges them by type, and refuses them if the pod has another UID.
func (c *client) patch(ctx context.Context, pod Pod, conditions []Condition) (string, error) {
	var p status
	p.Metadata.UID, p.Status.Conditions = pod.UID, conditions
	body, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	body, err = c.api.Do(ctx, kubelet.Request{
		Method: http.MethodPatch, Path: append(path(pod), "status"), Query: "fieldManager=nodevirt-shim",
		Type: "application/strategic-merge-patch+json", Metadata: true, Body: body,
	})
	if err != nil {
		return "", err
	}
	var answer status
	_ = json.Unmarshal(body, &answer) // without a version the pod is read again
	return answer.Metadata.ResourceVersion, nil
}

// maxEvent is the most bytes that the API server takes of an event's message.
const maxEvent = 1024

// record records a warning as an event of a pod. The credential of a kubelet may create events.
func (c *client) record(ctx context.Context, pod Pod, e event) error {
	const component = "nodevirt-shim"
	now := time.Now().UTC().Format(time.RFC3339)
	body, err := json.Marshal(map[string]any{
		"metadata":       map[string]any{"generateName": pod.Name + ".", "namespace": pod.Namespace},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": pod.Namespace, "name": pod.Name, "uid": pod.UID},
		"type":           "Warning", "reason": e.reason, "message": e.message, "source": map[string]any{"component": component},
		"firstTimestamp": now, "lastTimestamp": now, "count": 1,
	})
	if err != nil {
		return err
	}
	_, err = c.api.Do(ctx, kubelet.Request{
		Method: http.MethodPost, Path: []string{"api", "v1", "namespaces", pod.Namespace, "events"}, Type: "application/json", Body: body,
	})
	return err
}
