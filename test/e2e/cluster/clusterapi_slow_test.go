//go:build cluster && slow

package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestClusterAPI does what Cluster API's provider for KubeVirt does with a machine: a Secret with the bootstrap
// data, a VM that reads it from a config drive, a Service in front of control planes, and then the fields that
// it reads until the machine is there; at last its node is drained, and the provider deletes the VMI.
func TestClusterAPI(t *testing.T) {
	t.Parallel()
	const name, owner = "capi-control-plane-x7k2p", "capi"
	made(t, object{
		"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
		"metadata": object{"name": name + "-userdata", "labels": object{"cluster.x-k8s.io/cluster-name": owner}},
		"data":     object{"userdata": base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\nmkdir -p /run/cluster-api && echo success >/run/cluster-api/bootstrap-success.complete\n"))},
	})
	made(t, object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": owner + "-lb", "labels": object{"cluster.x-k8s.io/cluster-name": owner}},
		"spec": object{
			"type":     "ClusterIP",
			"ports":    []object{{"port": 6443, "protocol": "TCP", "targetPort": 80}}, // the small guest's web server
			"selector": object{"cluster.x-k8s.io/role": "control-plane", "cluster.x-k8s.io/cluster-name": owner},
		},
	})
	labels := object{
		"kubevirt.io/vm": name, "name": name, "cluster.x-k8s.io/role": "control-plane", "cluster.x-k8s.io/cluster-name": owner,
		"capk.cluster.x-k8s.io/kubevirt-machine-name": name, "capk.cluster.x-k8s.io/kubevirt-machine-namespace": "default",
	}
	made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name, "labels": labels},
		"spec": object{"runStrategy": "Always", "template": object{"metadata": object{"labels": labels}, "spec": object{
			"domain": object{
				"cpu": object{"cores": 2}, "memory": object{"guest": "128Mi"},
				"devices": object{
					"networkInterfaceMultiqueue": true,
					"disks": []object{
						{"name": "containervolume", "disk": object{"bus": "virtio"}},
						{"name": "cloudinitvolume", "disk": object{"bus": "virtio"}},
					},
				},
			},
			"evictionStrategy": "External",
			"volumes": []object{
				{"name": "containervolume", "containerDisk": object{"image": suite.agent}},
				{"name": "cloudinitvolume", "cloudInitConfigDrive": object{"secretRef": object{"name": name + "-userdata"}}},
			},
		}}},
	})

	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=Ready"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=AgentConnected"))
	instance := func(ctx context.Context) (vmi kubevirt.VirtualMachineInstance, err error) {
		text, err := suite.Kubectl(ctx, "get", "vmi", name, "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(text), &vmi)
		}
		return vmi, err
	}
	vmi, err := instance(t.Context())
	assert.NilError(t, err)
	if len(vmi.Status.Interfaces) == 0 || vmi.Status.Interfaces[0].IP == "" || len(vmi.Status.Interfaces[0].IPs) == 0 {
		t.Fatalf("no addresses: %+v", vmi.Status.Interfaces)
	}
	migratable := false
	for _, c := range vmi.Status.Conditions {
		migratable = migratable || c.Type == kubevirt.VirtualMachineInstanceIsMigratable && (c.Status == corev1.ConditionTrue || c.Reason != "" && c.Message != "")
	}
	if !migratable || vmi.IsFinal() {
		t.Errorf("phase %s, conditions %+v", vmi.Status.Phase, vmi.Status.Conditions)
	}
	pod := strings.TrimSpace(kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "jsonpath={.items[0].metadata.name}"))
	// What the provider reads by SSH.
	wait.Success(t, "the end of the bootstrap", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "exec", pod, "--", "cat", "/run/cluster-api/bootstrap-success.complete")
		if err == nil && strings.TrimSpace(out) != "success" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	before := answer(t, owner+"-lb:6443")

	// A drain asks for the pod's eviction.
	out, err := sent(t, object{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": pod}},
		"create", "--raw", "/api/v1/namespaces/default/pods/"+pod+"/eviction", "-f", "-")
	if err == nil || !strings.Contains(out, "evacuation of VMI") {
		t.Errorf("evicted: %v: %s", err, out)
	}
	if vmi, err = instance(t.Context()); err != nil || vmi.Status.EvacuationNodeName != vmi.Status.NodeName {
		t.Errorf("%v: it should leave node %q, and runs on %s", err, vmi.Status.EvacuationNodeName, vmi.Status.NodeName)
	}
	kubectl(t, "delete", "vmi", name, "--cascade=foreground", "--wait=false")
	wait.Success(t, "another VMI, which stays", func(ctx context.Context) error {
		now, err := instance(ctx)
		if err == nil && (now.UID == vmi.UID || now.Status.EvacuationNodeName != "") {
			err = fmt.Errorf("UID %s, should leave %q", now.UID, now.Status.EvacuationNodeName)
		}
		return err
	})
	answerOf(t, name, before.BootID)
}
