package nodelabels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/kubelet"
)

// node is the Node object of the shim's node.
type node struct {
	api  *kubelet.Client
	name string // empty until the API server has said it
}

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
	if err := n.learn(ctx); err != nil {
		return err
	}
	path := []string{"api", "v1", "nodes", n.name}
	// An answer of the API server's cache will do: the patch names the Node's UID.
	body, err := n.api.Do(ctx, kubelet.Request{Method: http.MethodGet, Path: path, Query: "resourceVersion=0", Metadata: true})
	if errors.Is(err, kubelet.ErrGone) {
		return fmt.Errorf("read node %s: the kubelet has not registered it: %w", n.name, err)
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", n.name, err)
	}
	var has metadata
	if err := json.Unmarshal(body, &has); err != nil {
		return fmt.Errorf("read node %s: %w", n.name, err)
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
		return fmt.Errorf("label node %s: %w", n.name, err)
	}
	return nil
}

// nodeUser begins the name of a kubelet's user.
const nodeUser = "system:node:"

// learn asks the API server whose credential the kubeconfig has: a node's name need not be
// its host name.
func (n *node) learn(ctx context.Context) error {
	if n.name != "" {
		return nil
	}
	body, err := n.api.Do(ctx, kubelet.Request{
		Method: http.MethodPost, Path: []string{"apis", "authentication.k8s.io", "v1", "selfsubjectreviews"},
		Type: "application/json", Body: []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`),
	})
	if err != nil {
		return fmt.Errorf("learn the node's name: %w", err)
	}
	var review struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &review); err != nil {
		return fmt.Errorf("learn the node's name: %w", err)
	}
	name, is := strings.CutPrefix(review.Status.UserInfo.Username, nodeUser)
	if !is || name == "" {
		return fmt.Errorf("learn the node's name: the user of kubernetes.kubeconfig is %.100q, no node; set the kubelet's kubeconfig",
			review.Status.UserInfo.Username)
	}
	n.name = name
	return nil
}
