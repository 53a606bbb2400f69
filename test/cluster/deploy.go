package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/deploy/image"
	"github.com/nodevirt/nodevirt/test/wait"
)

// Release is a version of nodevirt for clusters.
type Release struct {
	Controller string // the program's path
	Manifests  string // a folder like deploy/
	Tag        string // of the image; default latest
}

// Deploy installs this checkout's nodevirt, as docs/install.md describes, and waits until its controller is
// available. The controller's program is the one that `make image` builds.
func (c *Cluster) Deploy(ctx context.Context) error {
	return c.DeployRelease(ctx, Release{
		Controller: c.o.bin("image/nodevirt-controller"), Manifests: filepath.Join(filepath.Dir(c.o.Bin), "deploy"),
	})
}

// DeployRelease is Deploy for any version; the manifests replace those of a version that is installed.
func (c *Cluster) DeployRelease(ctx context.Context, r Release) error {
	if err := r.Push(ctx, c); err != nil {
		return err
	}
	folder, err := c.o.manifests(r)
	if err != nil {
		return err
	}
	// The manager of fields is the same for all versions.
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(r.Manifests, "crds")); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "-k", folder); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "--namespace=nodevirt", "rollout", "status", "deployment/nodevirt-controller",
		fmt.Sprintf("--timeout=%s", startLimit))
	if err != nil {
		return err
	}
	// The API server looks now and then whether the controller is there, and what it found counts a moment later.
	return wait.Do(ctx, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "get", "--raw", "/apis/admission.nodevirt.io/v1")
		return err
	})
}

// Push makes the controller's image, and pushes it by the name that the manifests have for it: all registries are
// the cluster's own.
func (r Release) Push(ctx context.Context, c *Cluster) error {
	img, err := image.Controller(r.Controller, "test")
	if err != nil {
		return fmt.Errorf("make the controller's image; was it built? %w", err)
	}
	_, err = c.Push(ctx, "nodevirt/nodevirt-controller:"+cmp.Or(r.Tag, "latest"), img)
	return err
}

// Remove deletes what [Cluster.DeployRelease] has installed of a release, except the CRDs: objects stay.
func (r Release) Remove(ctx context.Context, c *Cluster) error {
	folder, err := c.o.manifests(r)
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "delete", "-k", folder, fmt.Sprintf("--timeout=%s", startLimit))
	return err
}

// RemoveCRDs deletes the release's CRDs, and all their objects, once [Release.Remove] or Helm has removed the rest:
// the API server enforces a policy that is gone for a moment.
func (r Release) RemoveCRDs(ctx context.Context, c *Cluster) error {
	return wait.Do(ctx, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "delete", "--ignore-not-found", "-f", filepath.Join(r.Manifests, "crds"))
		return err
	})
}

// DeployExportProxy installs this checkout's export proxy in a namespace, which exists, and waits until it
// is available. A controller in another namespace needs its name: -export-proxy-namespace.
func (c *Cluster) DeployExportProxy(ctx context.Context, namespace string) error {
	overlay := c.o.path("export-proxy")
	base, err := filepath.Rel(overlay, filepath.Join(filepath.Dir(c.o.Bin), "deploy", "export-proxy"))
	if err != nil {
		return fmt.Errorf("find the export proxy's manifests: %w", err)
	}
	if err := writeKustomization(overlay, object{"resources": []string{base}, "namespace": namespace}); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "-k", overlay); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "--namespace", namespace, "rollout", "status", "deployment/virt-exportproxy",
		fmt.Sprintf("--timeout=%s", startLimit))
	return err
}

// writeKustomization writes a kustomization into a folder.
func writeKustomization(folder string, k object) error {
	k["apiVersion"], k["kind"] = "kustomize.config.k8s.io/v1beta1", "Kustomization"
	text, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("encode the overlay: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o644); err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	return nil
}

// manifests returns the folder of what to apply: the release's, or an overlay that adds the controller's flags
// and the image's tag. A later change of the flags would replace the controller's pods while the tests begin.
func (o Options) manifests(r Release) (string, error) {
	if len(o.Controller) == 0 && r.Tag == "" {
		return r.Manifests, nil
	}
	overlay := o.path("deploy")
	base, err := filepath.Rel(overlay, r.Manifests)
	if err != nil {
		return "", fmt.Errorf("find the manifests: %w", err)
	}
	kustomization := object{"resources": []string{base}}
	if r.Tag != "" {
		kustomization["images"] = []object{{"name": "registry.example.com/nodevirt/nodevirt-controller", "newTag": r.Tag}}
	}
	if len(o.Controller) > 0 {
		patch, err := json.Marshal([]object{{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": o.Controller}})
		if err != nil {
			return "", fmt.Errorf("encode the controller's flags: %w", err)
		}
		kustomization["patches"] = []object{{
			"target": object{"kind": "Deployment", "name": "nodevirt-controller"}, "patch": string(patch),
		}}
	}
	return overlay, writeKustomization(overlay, kustomization)
}
