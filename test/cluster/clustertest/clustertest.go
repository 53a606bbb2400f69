// Package clustertest is what suites of tests of a cluster share: a guest's disk in the registry, kubectl
// that ends a test when it fails, and waiting. It owns no cluster and starts nothing; that is package
// cluster's matter.
package clustertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// Patience bounds every wait. Emulated guests on a busy machine are slow.
const Patience = 5 * time.Minute

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
	Check(t, err)
	return strings.TrimSpace(out)
}

// Eventually tries until there is no error.
func Eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	if err := Until(t.Context(), try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Told waits for an event of an object, by its kind and name, with a text in it.
func Told(t *testing.T, c *cluster.Cluster, kind, name, text string) {
	t.Helper()
	Eventually(t, "an event of "+name, func(ctx context.Context) error {
		out, err := c.Kubectl(ctx, "get", "events",
			"--field-selector=involvedObject.kind="+kind+",involvedObject.name="+name, "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, text) {
			err = fmt.Errorf("no %q among %s", text, out)
		}
		return err
	})
}

// Until tries until there is no error, and returns the last one if that takes too long.
func Until(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Check ends the test if there is an error.
func Check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
