package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// nodeUser begins the name of a kubelet's user.
const nodeUser = "system:node:"

// NodeName returns the name of the node whose credential the kubeconfig has, which the API server says: a node's name
// need not be its host name.
func (c *Client) NodeName(ctx context.Context) (string, error) {
	if c.node != "" {
		return c.node, nil
	}
	body, err := c.Do(ctx, Request{
		Method: http.MethodPost, Path: []string{"apis", "authentication.k8s.io", "v1", "selfsubjectreviews"},
		Type: "application/json", Body: []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`),
	})
	if err != nil {
		return "", fmt.Errorf("learn the node's name: %w", err)
	}
	var review struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &review); err != nil {
		return "", fmt.Errorf("learn the node's name: %w", err)
	}
	name, is := strings.CutPrefix(review.Status.UserInfo.Username, nodeUser)
	if !is || name == "" {
		return "", fmt.Errorf("learn the node's name: the user of kubernetes.kubeconfig is %.100q, no node; set the kubelet's kubeconfig",
			review.Status.UserInfo.Username)
	}
	c.node = name
	return name, nil
}
