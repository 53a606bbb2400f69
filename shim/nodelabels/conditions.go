package nodelabels

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/nodevirt/nodevirt/shim/kubelet"
)

// NodeCondition is a condition of the Node.
type NodeCondition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
	LastHeartbeatTime  time.Time `json:"lastHeartbeatTime"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`

	// Annotations are the Node's that belong to the condition, and are written with it. An empty value removes one.
	Annotations map[string]string `json:"-"`
}

// heartbeat is how often a condition that does not change is written. It is also then that a Node that was made again gets
// what a [Condition] keeps up to date.
const heartbeat = 5 * time.Minute

// Conditions writes conditions of the Node. One goroutine at a time may use it.
type Conditions struct{ api *kubelet.Client }

// NewConditions returns Conditions with a kubeconfig, which need not exist yet. With an empty path nothing is written.
func NewConditions(kubeconfig string) *Conditions {
	if kubeconfig == "" {
		return new(Conditions)
	}
	return &Conditions{api: kubelet.New(kubeconfig)}
}

// Set compares a condition with the Node's, and writes it if that is another one or an old one.
func (c *Conditions) Set(ctx context.Context, want NodeCondition) error {
	if c.api == nil {
		return nil
	}
	name, err := c.api.NodeName(ctx)
	if err != nil {
		return err
	}
	path := []string{"api", "v1", "nodes", name}
	body, err := c.api.Do(ctx, kubelet.Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	var node struct {
		Metadata struct {
			UID         string            `json:"uid"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Status struct {
			Conditions []NodeCondition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &node); err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	want.LastHeartbeatTime = time.Now().UTC().Truncate(time.Second)
	want.LastTransitionTime = want.LastHeartbeatTime
	metadata := map[string]any{"uid": node.Metadata.UID}
	if changed := annotationChanges(node.Metadata.Annotations, want.Annotations); len(changed) > 0 {
		metadata["annotations"] = changed
	}
	for _, has := range node.Status.Conditions {
		if has.Type != want.Type {
			continue
		}
		if has.Status == want.Status {
			want.LastTransitionTime = has.LastTransitionTime
		}
		same := has.Status == want.Status && has.Reason == want.Reason && has.Message == want.Message
		if same && metadata["annotations"] == nil && want.LastHeartbeatTime.Sub(has.LastHeartbeatTime).Abs() < heartbeat {
			return nil
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata, "status": map[string]any{"conditions": []NodeCondition{want}},
	})
	if err != nil {
		return err
	}
	_, err = c.api.Do(ctx, kubelet.Request{
		Method: http.MethodPatch, Path: append(path, "status"), Query: "fieldManager=nodevirt-shim",
		Type: "application/strategic-merge-patch+json", Metadata: true, Body: patch,
	})
	if err != nil {
		return fmt.Errorf("write condition %s of node %s: %w", want.Type, name, err)
	}
	return nil
}

// annotationChanges returns the wanted annotations that an object does not have, for a patch; null removes one.
func annotationChanges(has, wanted map[string]string) map[string]any {
	all := map[string]any{}
	for key, value := range wanted {
		switch now, there := has[key]; {
		case value == "" && there:
			all[key] = nil
		case value != "" && now != value:
			all[key] = value
		}
	}
	return all
}
