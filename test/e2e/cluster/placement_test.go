//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// A VM that fits nowhere says so, in the scheduler's words. It changes a node, so it runs alone.
func TestAVMThatFitsNowhereSaysWhy(t *testing.T) {
	t.Run("cordoned", func(t *testing.T) {
		uncordon(t)
		kubectl(t, "cordon", harmed)
		unschedulable(t, machine(strangersVMI("cordoned", on(harmed))), "were unschedulable")
	})
	t.Run("without a shim", func(t *testing.T) {
		undo(t, func(ctx context.Context) error {
			_, err := suite.Kubectl(ctx, "label", "node", harmed, "nodevirt.io/node=true")
			return err
		})
		kubectl(t, "label", "node", harmed, "nodevirt.io/node-")
		unschedulable(t, machine(strangersVMI("shimless", on(harmed))), "didn't match Pod's node affinity/selector")
	})
	t.Run("full", func(t *testing.T) {
		// As much as fits without QEMU's own part, which a plain pod does not have.
		memory := clustertest.Free(t, suite.Cluster, harmed).String()
		fits := plainPod("fits", suite.busybox, "sleep", "1000000")
		fits["spec"].(object)["nodeSelector"] = hostname(harmed)
		container(fits)["resources"] = object{"requests": object{"memory": memory}}
		ready(t, fits)
		kubectl(t, "delete", "pod", "fits")
		unschedulable(t, machine(strangersVMI("full", func(spec, domain, devices object) {
			on(harmed)(spec, domain, devices)
			domain["memory"] = object{"guest": memory}
		})), "Insufficient memory")
	})
}

// VMs are spread as pods are, and each is reached from either node, by its address and by a Service.
func TestVMsSpreadOverTheNodes(t *testing.T) {
	t.Parallel()
	names, group := []string{"spread-a", "spread-b"}, object{"matchLabels": object{"group": "spread"}}
	grouped := func(name string, change func(spec, domain, devices object)) object {
		o := machine(strangersVMI(name, change))
		o["spec"].(object)["template"].(object)["metadata"] = object{"labels": object{"group": "spread", "app": name}}
		return o
	}
	for _, name := range names {
		made(t, grouped(name, func(spec, _, _ object) {
			spec["topologySpreadConstraints"] = []object{{
				"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": group,
			}}
		}))
		serve(t, name, object{"selector": object{"app": name}, "ports": []object{{"port": 80}}})
	}
	from := askers(t)
	boots, at := map[string]string{}, map[string]string{}
	for _, name := range names {
		boots[name] = answerOf(t, name, "")
		at[vmiField(t, name, ".status.nodeName")] = name
	}
	if len(at) != len(names) {
		t.Errorf("they are not spread: %v", at)
	}
	for _, from := range from {
		for _, name := range names {
			for _, host := range []string{vmiField(t, name, ".status.interfaces[0].ipAddress"), name} {
				wait.Success(t, "an answer to "+from+" at "+host, func(ctx context.Context) error {
					got, err := infoFor(ctx, from, host)
					if err == nil && got.BootID != boots[name] {
						err = fmt.Errorf("another answers, %s, for %s", got.BootID, boots[name])
					}
					return err
				})
			}
		}
	}
	unschedulable(t, grouped("spread-c", func(spec, _, _ object) {
		spec["affinity"] = object{"podAntiAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": []object{{
			"topologyKey": "kubernetes.io/hostname", "labelSelector": group,
		}}}}
	}), "didn't match pod anti-affinity rules")
}

// askers runs a pod on each node, from which guests are asked.
func askers(t *testing.T) (names []string) {
	t.Helper()
	for _, node := range []string{steady, harmed} {
		pod := plainPod("asks-from-"+node, suite.busybox, "sleep", "1000000")
		spec := pod["spec"].(object)
		spec["nodeName"], spec["shareProcessNamespace"] = node, true // pause reaps what timeout(1) leaves
		names = append(names, ready(t, pod))
	}
	return names
}

// unschedulable makes a VM and waits until it, its instance and an event say why it does not run.
func unschedulable(t *testing.T, o object, why string) {
	t.Helper()
	name := made(t, o)
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.printableStatus}=ErrorUnschedulable"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Scheduling"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=PodScheduled=False"))
	clustertest.Event(t, suite.Cluster, "VirtualMachineInstance", name, why)
	kubectl(t, "delete", "vm", name)
}

func hostname(node string) object { return object{"kubernetes.io/hostname": node} }

// on has a VM run on a node, and on no other.
func on(node string) func(spec, domain, devices object) {
	return func(spec, _, _ object) { spec["nodeSelector"] = hostname(node) }
}

// rather is the affinity of what runs on a node as long as it can be had.
func rather(node string) object {
	return object{"nodeAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []object{{
		"weight": 100,
		"preference": object{"matchExpressions": []object{
			{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{node}},
		}},
	}}}}
}
