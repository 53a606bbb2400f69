//go:build kubevirt

package kubevirt

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/nodevirt/nodevirt/test/cluster"
)

// installed is the namespace in which the suite looks for KubeVirt's components.
const installed = "kubevirt"

//go:embed testdata/fixtures.yaml
var fixtures string

// kinds are KubeVirt's kinds that the suite lists when it cleans up, and that nodevirt does not have.
var kinds = []struct{ group, version, kind, plural string }{
	{"backup.kubevirt.io", "v1alpha1", "VirtualMachineBackup", "virtualmachinebackups"},
	{"backup.kubevirt.io", "v1alpha1", "VirtualMachineBackupTracker", "virtualmachinebackuptrackers"},
}

// definition is a CRD that accepts whatever the suite writes.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[4]s, singular: %[5]s, listKind: %[3]sList}
  versions:
    - name: %[2]s
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`

// prepare makes of a cluster one in which the suite finds what it expects of KubeVirt.
func prepare(ctx context.Context, c *cluster.Cluster) error {
	if _, err := c.Control().PushBusybox(ctx); err != nil {
		return err
	}
	if err := pushGuests(ctx, c); err != nil {
		return err
	}
	if err := pushTools(ctx, c); err != nil {
		return err
	}
	for name, image := range map[string]string{"cloudinit-hook-sidecar": "example-cloudinit-hook-sidecar", "virt-handler": "virt-handler"} {
		if err := pushProgram(ctx, c, name, image); err != nil {
			return err
		}
	}
	if err := pushKernel(ctx, c); err != nil {
		return err
	}
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	for _, k := range kinds {
		name := k.plural + "." + k.group
		if _, err := c.Kubectl(ctx, "get", "crd", name); err == nil {
			continue // nodevirt has it
		}
		text := fmt.Sprintf(definition, k.group, k.version, k.kind, k.plural, strings.ToLower(k.kind))
		if err := c.Apply(ctx, text); err != nil {
			return err
		}
		if err := c.WaitFor(ctx, "crd/"+name, "condition=Established"); err != nil {
			return err
		}
	}
	if err := c.Apply(ctx, fixtures); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "label", "--overwrite", "node", "--all", "kubevirt.io/schedulable=true"); err != nil {
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
