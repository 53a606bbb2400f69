//go:build kubevirt

package kubevirt

import (
	"context"
	_ "embed"

	"github.com/nodevirt/nodevirt/test/cluster"
)

// installed is the namespace in which the suite looks for KubeVirt's components.
const installed = "kubevirt"

// sidecarShim is the image that runs hooks of ConfigMaps.
const sidecarShim = "kubevirt/sidecar-shim:" + version

//go:embed testdata/fixtures.yaml
var fixtures string

// prepare makes of a cluster one in which the suite finds what it expects of KubeVirt.
func prepare(ctx context.Context, c *cluster.Cluster) error {
	if _, err := c.Control().PushBusybox(ctx); err != nil {
		return err
	}
	if err := pushGuests(ctx, c); err != nil {
		return err
	}
	tools, err := pushTools(ctx, c)
	if err != nil {
		return err
	}
	for name, image := range map[string]string{"cloudinit-hook-sidecar": "example-cloudinit-hook-sidecar", "virt-handler": "virt-handler"} {
		if err := pushProgram(ctx, c, tools, name, image); err != nil {
			return err
		}
	}
	if withStorage() {
		if err := c.PushSidecars(ctx, sidecarShim, "kubevirt/example-hook-sidecar:"+version); err != nil {
			return err
		}
	}
	if err := pushKernel(ctx, c); err != nil {
		return err
	}
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	if err := c.Apply(ctx, cluster.MultusManifest); err != nil {
		return err
	}
	// What emulation takes more of guests with 128 MiB.
	const overhead = `{"overhead": {"podFixed": {"memory": "128Mi"}}}`
	if _, err := c.Kubectl(ctx, "patch", "runtimeclass", "vm", "--type=merge", "--patch="+overhead); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "label", "node", "node-1", "node-role.kubernetes.io/control-plane="); err != nil {
		return err // specs drain the others
	}
	if err := c.Apply(ctx, fixtures); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "label", "--overwrite", "node", "--all", "kubevirt.io/schedulable=true"); err != nil {
		return err
	}
	if err := c.DeployExportProxy(ctx, installed); err != nil {
		return err
	}
	// The object exists once the controller leads; the suite waits for its status.
	if err := c.WaitFor(ctx, "kubevirt/kubevirt", "jsonpath={.status.phase}=Deployed", "--namespace=nodevirt"); err != nil {
		return err
	}
	for _, workload := range []string{"deployment/virt-operator", "daemonset/virt-handler"} {
		if _, err := c.Kubectl(ctx, "--namespace", installed, "rollout", "status", workload, "--timeout=2m"); err != nil {
			return err
		}
	}
	return nil
}
