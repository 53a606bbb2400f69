//go:build kubevirt

package kubevirt

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/test/cluster"
)

// installed is the namespace in which the suite looks for KubeVirt's components.
const installed = "kubevirt"

//go:embed testdata/fixtures.yaml
var fixtures string

// kinds are KubeVirt's kinds that the suite lists when it cleans up, and that nodevirt does not have.
var kinds = []struct{ group, version, kind, plural string }{
	{"kubevirt.io", "v1", "KubeVirt", "kubevirts"},
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
	if err := deployed(ctx, c); err != nil {
		return err
	}
	for _, workload := range []string{"deployment/virt-operator", "daemonset/virt-handler"} {
		if _, err := c.Kubectl(ctx, "--namespace", installed, "rollout", "status", workload, "--timeout=2m"); err != nil {
			return err
		}
	}
	return nil
}

// deployed marks the KubeVirt object as deployed at the generation that it has, as KubeVirt's operator
// does. The suite waits for that before and after each spec.
func deployed(ctx context.Context, c *cluster.Cluster) error {
	out, err := c.Kubectl(ctx, "--namespace", installed, "get", "kubevirt", "kubevirt", "-o", "json")
	if err != nil {
		return err
	}
	var object struct {
		Metadata struct{ Generation int64 }
		Status   struct{ ObservedGeneration int64 }
	}
	if err := json.Unmarshal([]byte(out), &object); err != nil {
		return fmt.Errorf("read the KubeVirt object: %w", err)
	}
	if object.Metadata.Generation == object.Status.ObservedGeneration {
		return nil
	}
	conditions := []map[string]string{}
	for kind, status := range map[string]string{"Available": "True", "Created": "True", "Progressing": "False", "Degraded": "False"} {
		conditions = append(conditions, map[string]string{
			"type": kind, "status": status, "reason": "AllComponentsReady", "message": "-",
		})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"phase": "Deployed", "observedGeneration": object.Metadata.Generation, "conditions": conditions,
		"observedKubeVirtVersion": version, "targetKubeVirtVersion": version, "operatorVersion": version,
	}})
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "--namespace", installed, "patch", "kubevirt", "kubevirt",
		"--subresource=status", "--type=merge", "--patch", string(patch))
	return err
}

// keepDeployed repeats deployed until ctx ends.
func keepDeployed(ctx context.Context, c *cluster.Cluster) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
		if err := deployed(ctx, c); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
