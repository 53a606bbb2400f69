package nodelabels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/kubelet"
)

// node is the Node object of the shim's node.
type node struct{ api *kubelet.Client }

// metadata is the part of a Node that the shim reads and writes.
type metadata struct {
	Metadata struct {
		UID         string            `json:"uid,omitempty"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// update gives the Node the wanted labels. If partial is set, it removes [kubevirt.NodeSchedulable] at most.
func (n *node) update(ctx context.Context, wanted map[string]string, partial bool) error {
	name, err := n.api.NodeName(ctx)
	if err != nil {
		return err
	}
	path := []string{"api", "v1", "nodes", name}
	// An answer of the API server's cache will do: the patch names the Node's UID.
	body, err := n.api.Do(ctx, kubelet.Request{Method: http.MethodGet, Path: path, Query: "resourceVersion=0", Metadata: true})
	if errors.Is(err, kubelet.ErrGone) {
		return fmt.Errorf("read node %s: the kubelet has not registered it: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	var has metadata
	if err := json.Unmarshal(body, &has); err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	if _, skip := has.Metadata.Annotations[kubevirt.LabellerSkipNodeAnnotation]; skip {
		return nil
	}
	change := changes(has.Metadata.Labels, wanted)
	for key, value := range change {
		if partial && value == nil && key != kubevirt.NodeSchedulable {
			delete(change, key)
		}
	}
	if len(change) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": has.Metadata.UID, "labels": change}})
	if err != nil {
		return err
	}
	_, err = n.api.Do(ctx, kubelet.Request{
		Method: http.MethodPatch, Path: path, Query: "fieldManager=nodevirt-shim",
		Type: "application/merge-patch+json", Metadata: true, Body: patch,
	})
	if err != nil {
		return fmt.Errorf("label node %s: %w", name, err)
	}
	return nil
}
