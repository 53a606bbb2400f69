// Package clustertest holds what the test suites of clusters share: pushing a guest's disk, a kubectl
// that ends the test when it fails, clients on a terminal, waiting for events, and the memory that nodes have left. It
// starts no cluster; package cluster does.
package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// PushDisk builds a guest's disk, and pushes it as an image with that in /disk.
func PushDisk(
	ctx context.Context, c *cluster.Cluster, name string, build func(context.Context, guest.Options) (string, error),
) (ref string, err error) {
	path, err := build(ctx, c.Control().GuestOptions())
	if err != nil {
		return "", err
	}
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	if err != nil {
		return "", err
	}
	return c.Push(ctx, name, img)
}

// Kubectl runs kubectl and returns what it wrote to stdout, without space around it.
func Kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	assert.NilError(t, err)
	return strings.TrimSpace(out)
}

// Event waits for an event of an object, by its kind and name, with a text in
// it.
func Event(t *testing.T, c *cluster.Cluster, kind, name, text string) {
	t.Helper()
	wait.Success(t, "an event of "+name, func(ctx context.Context) error {
		out, err := c.Kubectl(ctx, "get", "events",
			"--field-selector=involvedObject.kind="+kind+",involvedObject.name="+name, "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, text) {
			err = fmt.Errorf("no %q among %s", text, out)
		}
		return err
	})
}

// Free returns the memory that no pod requests on a node, less a bit.
func Free(t *testing.T, c *cluster.Cluster, node string) *resource.Quantity {
	t.Helper()
	left, err := resource.ParseQuantity(Kubectl(t, c, "get", "node", node, "-o", "jsonpath={.status.allocatable.memory}"))
	assert.NilError(t, err)
	var pods corev1.PodList
	text := Kubectl(t, c, "get", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+node, "-o", "json")
	assert.NilError(t, json.Unmarshal([]byte(text), &pods))
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue // the scheduler counts it no more
		}
		left.Sub(p.Spec.Overhead[corev1.ResourceMemory])
		for _, c := range p.Spec.Containers {
			left.Sub(c.Resources.Requests[corev1.ResourceMemory])
		}
	}
	left.Sub(resource.MustParse("32Mi"))
	return resource.NewQuantity(left.Value()>>20<<20, resource.BinarySI)
}
