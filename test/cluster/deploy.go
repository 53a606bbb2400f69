package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
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
	folder, err := c.o.manifests()
	if err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "-k", folder); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "--namespace=nodevirt", "rollout", "status", "deployment/nodevirt-controller",
		fmt.Sprintf("--timeout=%s", startLimit))
	return err
}

// manifests returns the folder of what Deploy applies: that of the checkout, or an overlay that adds the
// controller's flags. A later change would replace the controller's pods while the tests begin.
func (o Options) manifests() (string, error) {
	folder := filepath.Join(filepath.Dir(o.Bin), "deploy")
	if len(o.Controller) == 0 {
		return folder, nil
	}
	overlay := o.path("deploy")
	base, err := filepath.Rel(overlay, folder)
	if err != nil {
		return "", fmt.Errorf("find the manifests: %w", err)
	}
	patch, err := json.Marshal([]object{{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": o.Controller}})
	if err != nil {
		return "", fmt.Errorf("encode the controller's flags: %w", err)
	}
	text, err := json.Marshal(object{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": []string{base},
		"patches": []object{{"target": object{"kind": "Deployment", "name": "nodevirt-controller"}, "patch": string(patch)}},
	})
	if err != nil {
		return "", fmt.Errorf("encode the overlay: %w", err)
	}
	if err := os.MkdirAll(overlay, 0o755); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), text, 0o644); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return overlay, nil
}
