//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"testing"

	"github.com/nodevirt/nodevirt/test/node"
)

// nodeOf is the node that a pod runs on.
func nodeOf(t *testing.T, pod string) *node.Node {
	t.Helper()
	name := field(t, pod, ".spec.nodeName")
	n := suite.Node(name)
	if n == nil {
		t.Fatalf("pod %s runs on %q, which is no node of the cluster", pod, name)
	}
	return n
}

// askKubelet fetches a page of the kubelet on the node of a pod, by way of the API server.
func askKubelet(ctx context.Context, pod, page string) (string, error) {
	on, err := suite.Kubectl(ctx, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	if err != nil {
		return "", err
	}
	return suite.Kubectl(ctx, "get", "--raw", fmt.Sprintf("/api/v1/nodes/%s/proxy/%s", on, page))
}
