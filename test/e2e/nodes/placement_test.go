//go:build cluster

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
)

// group labels VMs that are to be apart.
const group = "spread"

func grouped(o object) object {
	o["spec"].(object)["template"].(object)["metadata"].(object)["labels"].(object)["group"] = group
	return o
}

func apart(spec object) {
	spec["topologySpreadConstraints"] = []object{{
		"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
		"labelSelector": object{"matchLabels": object{"group": group}},
	}}
}

func alone(spec object) {
	spec["affinity"] = object{"podAntiAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": []object{{
		"topologyKey": "kubernetes.io/hostname", "labelSelector": object{"matchLabels": object{"group": group}},
	}}}}
}

// VMs are spread as pods are, and each is reached from either node, by its address and by a Service.
func TestVMsSpreadOverTheNodes(t *testing.T) {
	names := []string{"spread-a", "spread-b"}
	for _, name := range names {
		create(t, grouped(vm(name, apart)))
		create(t, object{
			"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name},
			"spec": object{"selector": object{"app": name}, "ports": []object{{"port": 80}}},
		})
	}
	create(t, asker("client", harmed))
	boots, at := map[string]string{}, map[string]string{}
	for _, name := range names {
		boots[name] = answer(t, name, "")
		at[vmiField(t, name, ".status.nodeName")] = name
	}
	if len(at) != len(names) {
		t.Errorf("they are not spread: %v", at)
	}
	for _, from := range []string{"asker", "client"} {
		for _, name := range names {
			for _, host := range []string{vmiField(t, name, ".status.interfaces[0].ipAddress"), name} {
				clustertest.Eventually(t, "an answer to "+from+" at "+host, func(ctx context.Context) error {
					got, err := bootOf(ctx, from, host)
					if err == nil && got != boots[name] {
						err = fmt.Errorf("another answers, %s, for %s", got, boots[name])
					}
					return err
				})
			}
		}
	}
	unschedulable(t, vm("spread-c", alone), "didn't match pod anti-affinity rules")
}

// A VM that fits nowhere says so, in the scheduler's words.
func TestAVMThatFitsNowhereSaysWhy(t *testing.T) {
	t.Run("cordoned", func(t *testing.T) {
		kubectl(t, "cordon", harmed)
		t.Cleanup(func() { undo(t, "uncordon", harmed) })
		unschedulable(t, vm("cordoned", on(harmed)), "were unschedulable")
	})
	t.Run("without a shim", func(t *testing.T) {
		kubectl(t, "label", "node", harmed, "nodevirt.io/node-")
		t.Cleanup(func() { undo(t, "label", "node", harmed, "nodevirt.io/node=true") })
		unschedulable(t, vm("shimless", on(harmed)), "didn't match Pod's node affinity/selector")
	})
	t.Run("full", func(t *testing.T) {
		// As much as fits without QEMU's own part, which a plain pod does not have.
		memory := free(t).String()
		fits := asker("fits", harmed)
		spec := fits["spec"].(object)
		delete(spec, "nodeName")
		on(harmed)(spec)
		spec["containers"].([]object)[0]["resources"] = object{"requests": object{"memory": memory}}
		create(t, fits)
		waitFor(t, "pod/fits", "condition=Ready")
		kubectl(t, "delete", "pod", "fits")
		unschedulable(t, vm("full", func(spec object) {
			on(harmed)(spec)
			spec["domain"].(object)["memory"] = object{"guest": memory}
		}), "Insufficient memory")
	})
}

// unschedulable makes a VM and waits until it, its instance and an event tell why it does not run.
func unschedulable(t *testing.T, o object, why string) {
	t.Helper()
	name := create(t, o)
	waitFor(t, "vm/"+name, "jsonpath={.status.printableStatus}=ErrorUnschedulable")
	if phase := vmiField(t, name, ".status.phase"); phase != "Scheduling" {
		t.Errorf("phase of %s: %s", name, phase)
	}
	waitFor(t, "vmi/"+name, "condition=PodScheduled=False")
	event(t, name, why)
	kubectl(t, "delete", "vm", name)
}

// free is the memory that is not asked for on the node that is harmed, less a bit.
func free(t *testing.T) *resource.Quantity {
	t.Helper()
	left, err := resource.ParseQuantity(kubectl(t, "get", "node", harmed, "-o", "jsonpath={.status.allocatable.memory}"))
	check(t, err)
	var pods corev1.PodList
	check(t, json.Unmarshal([]byte(kubectl(t, "get", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+harmed, "-o", "json")), &pods))
	for _, p := range pods.Items {
		left.Sub(p.Spec.Overhead[corev1.ResourceMemory])
		for _, c := range p.Spec.Containers {
			left.Sub(c.Resources.Requests[corev1.ResourceMemory])
		}
	}
	left.Sub(resource.MustParse("32Mi"))
	return resource.NewQuantity(left.Value()>>20<<20, resource.BinarySI)
}

// undo runs kubectl when a test has ended.
func undo(t *testing.T, args ...string) {
	t.Helper()
	if _, err := suite.Kubectl(context.WithoutCancel(t.Context()), args...); err != nil {
		t.Error(err)
	}
}
