package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/nodevirt/nodevirt/deploy/image"
)

// Deploy installs nodevirt in the cluster as docs/install.md describes, and waits until its controller is
// available. The controller's image is of the program that `make image` built.
func (c *Cluster) Deploy(ctx context.Context) error {
	img, err := image.Controller(c.o.bin("image/nodevirt-controller"), "test")
	if err != nil {
		return fmt.Errorf("make the controller's image; was it built? %w", err)
	}
	// As the manifests name it: all registries are the cluster's own.
	if _, err := c.Push(ctx, "nodevirt/nodevirt-controller:latest", img); err != nil {
		return err
	}
	folder := filepath.Join(filepath.Dir(c.o.Bin), "deploy")
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "-k", folder); err != nil {
		return err
	}
	if len(c.o.Controller) > 0 {
		patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": c.o.Controller}})
		if err != nil {
			return fmt.Errorf("encode the controller's flags: %w", err)
		}
		if _, err := c.Kubectl(ctx, "--namespace=nodevirt", "patch", "deployment", "nodevirt-controller", "--type=json", "--patch="+string(patch)); err != nil {
			return err
		}
	}
	_, err = c.Kubectl(ctx, "--namespace=nodevirt", "rollout", "status", "deployment/nodevirt-controller",
		fmt.Sprintf("--timeout=%s", startLimit))
	return err
}
