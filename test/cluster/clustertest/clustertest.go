// Package clustertest holds what the test suites of clusters share: pushing a guest's disk, a kubectl
// that ends the test when it fails, and waiting for events. It starts no cluster; package cluster does.
package clustertest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

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
