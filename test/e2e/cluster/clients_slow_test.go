//go:build cluster && slow

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// haltedVM is a VM that does not run.
func haltedVM(name string) object {
	o := machineOf(name)
	o["spec"].(object)["runStrategy"] = "Halted"
	return o
}

// What is applied again changes nothing, by either way of applying, and kubectl sees no difference between
// the manifest and the cluster: tools of continuous delivery would apply for ever otherwise.
func TestWhatIsAppliedTwiceStays(t *testing.T) {
	t.Parallel()
	group := func(o object, spec object) object { // of halted VMs or of no VMIs
		spec["template"] = object{"metadata": object{"labels": object{"app": "twice"}}, "spec": o["spec"]}
		spec["selector"] = object{"matchLabels": object{"app": "twice"}}
		spec["replicas"] = 0
		return spec
	}
	running := machineOf("twice-vm")
	for kind, o := range map[string]object{
		"vm":     running,
		"halted": haltedVM("twice-halted"),
		"vmi":    instanceOf("twice-vmi"),
		"vmirs": {
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": object{"name": "twice"},
			"spec": group(instanceOf(""), object{}),
		},
		"vmpool": {
			"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": object{"name": "twice"},
			"spec": func() object {
				s := group(object{}, object{})
				s["virtualMachineTemplate"] = object{"metadata": object{"labels": object{"app": "twice"}}, "spec": haltedVM("")["spec"]}
				delete(s, "template")
				return s
			}(),
		},
		"instancetype": {
			"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype", "metadata": object{"name": "twice"},
			"spec": object{"cpu": object{"guest": 1}, "memory": object{"guest": "96Mi"}},
		},
		"preference": {
			"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachinePreference", "metadata": object{"name": "twice"},
			"spec": object{"devices": object{"preferredDiskBus": "virtio"}},
		},
		"policy": {
			"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": object{"name": "twice"},
			"spec": object{"allowAutoConverge": true, "selectors": object{"namespaceSelector": object{"app": "twice"}}},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, way := range [][]string{{"--server-side"}, {}} {
				text, err := json.Marshal(o)
				assert.NilError(t, err)
				path := filepath.Join(t.TempDir(), "manifest.json")
				assert.NilError(t, os.WriteFile(path, text, 0o600))
				apply := append([]string{"apply", "-f", path}, way...)
				undo(t, func(ctx context.Context) error {
					_, err := suite.Kubectl(ctx, "delete", "--ignore-not-found", "-f", path)
					return err
				})
				kubectl(t, apply...)
				if kind == "vm" || kind == "vmi" { // status and labels have come
					assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+o["metadata"].(object)["name"].(string), "condition=Ready"))
				}
				generation := func() string { return kubectl(t, "get", "-f", path, "-o", "jsonpath={.metadata.generation}") }
				before := generation()
				kubectl(t, apply...)
				if after := generation(); after != before {
					t.Errorf("%v: applied again, the generation %s is %s", way, before, after)
				}
				if difference, err := suite.Kubectl(t.Context(), append([]string{"diff", "-f", path}, way...)...); err != nil {
					t.Errorf("%v: %v\n%s", way, err, difference)
				}
				kubectl(t, "delete", "-f", path)
			}
		})
	}
}

// kubectl explain has words for what users set, where KubeVirt's API has.
func TestExplain(t *testing.T) {
	t.Parallel()
	kubectl(t, "api-resources", "--api-group=kubevirt.io") // explain may know only what kubectl kept before the CRDs came
	for _, of := range []string{
		"vm.spec", "vm.status", "vmi.spec", "vmi.spec.domain", "vmi.spec.domain.cpu", "vmi.spec.domain.devices", "vmi.status",
		"vmirs.spec", "vmsnapshot.spec", "vmrestore.spec", "vminstancetype.spec", "vmpref.spec",
	} {
		text := kubectl(t, "explain", of)
		about, fields, _ := strings.Cut(text, "FIELDS:")
		// KubeVirt's API describes most fields.
		if strings.Contains(about, "<empty>") || strings.Count(fields, "<no description>") > strings.Count(fields, "\t<")/4 {
			t.Errorf("%s:\n%s", of, text)
		}
	}
}

// Policies of the cluster's administrator apply to VMIs and to their pods, and what they refuse is said where
// users look.
func TestPoliciesApplyToVMsAndTheirPods(t *testing.T) {
	t.Parallel()
	policy := func(name, group, resource, expression, message string) {
		for _, o := range []object{
			{
				"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": object{"name": name},
				"spec": object{
					"matchConstraints": object{
						"objectSelector": object{"matchLabels": object{"policy": name}},
						"resourceRules":  []object{{"apiGroups": []string{group}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{resource}}},
					},
					"validations": []object{{"expression": expression, "message": message}},
				},
			},
			{
				"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": object{"name": name},
				"spec": object{"policyName": name, "validationActions": []string{"Deny"}},
			},
		} {
			assert.NilError(t, create(t.Context(), o))
			undo(t, func(ctx context.Context) error {
				_, err := suite.Kubectl(ctx, "delete", o["kind"].(string), name, "--ignore-not-found")
				return err
			})
		}
	}
	policy("owned-vmis", "kubevirt.io", "virtualmachineinstances", "'owner' in object.metadata.labels", "say whose the VM is: label owner")
	policy("owned-pods", "", "pods", "object.spec.containers.all(c, c.resources.requests['memory'] != '') && 'owner' in object.metadata.labels",
		"say whose the pod is: label owner")

	// The API server takes a while to know a policy.
	wait.Success(t, "a policy in force", func(ctx context.Context) error {
		o := instanceOf("unowned")
		o["metadata"].(object)["labels"] = object{"policy": "owned-vmis"}
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		cmd := suite.KubectlCommand(ctx, "create", "--dry-run=server", "-f", "-")
		cmd.Stdin = strings.NewReader(string(text))
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "say whose the VM is") {
			return fmt.Errorf("the answer is %q", out)
		}
		return nil
	})

	labelled := func(name string, labels object) object {
		o := machineOf(name)
		o["spec"].(object)["template"].(object)["metadata"] = object{"labels": labels}
		return o
	}
	// The VM cannot make its VMI; with the label it can.
	refused := made(t, labelled("policy-vm", object{"policy": "owned-vmis"}))
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+refused, "condition=Failure"))
	if says := kubectl(t, "get", "vm", refused, "-o", `jsonpath={.status.conditions[?(@.type=="Failure")].message}`); !strings.Contains(says, "say whose the VM is") {
		t.Errorf("the VM says %q", says)
	}
	kubectl(t, "patch", "vm", refused, "--type=merge", "-p", `{"spec": {"template": {"metadata": {"labels": {"owner": "me"}}}}}`)
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+refused, "condition=Ready"))

	// The VMI cannot make its pod.
	podless := made(t, labelled("policy-pod", object{"policy": "owned-pods"}))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+podless, "condition=Synchronized=False"))
	if says := vmiField(t, podless, `.status.conditions[?(@.type=="Synchronized")].message`); !strings.Contains(says, "say whose the pod is") {
		t.Errorf("the VMI says %q", says)
	}
	if out := kubectl(t, "get", "events", "--field-selector", "involvedObject.name="+podless, "-o", "jsonpath={..message}"); !strings.Contains(out, "say whose the pod is") {
		t.Errorf("the events are %q", out)
	}
}

// A backup's tool lists VMs, and makes them again in another namespace without their UIDs and status: they
// run.
func TestRestoredFromABackup(t *testing.T) {
	t.Parallel()
	name := made(t, machineOf("backed-up"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=Ready"))
	before := answerOf(t, name, "")

	var backup object
	assert.NilError(t, json.Unmarshal([]byte(kubectl(t, "get", "vm", name, "-o", "json")), &backup))
	kubectl(t, "delete", "vm", name)
	delete(backup, "status")
	metadata := backup["metadata"].(object)
	maps.DeleteFunc(metadata, func(key string, _ any) bool {
		return key != "name" && key != "labels" && key != "annotations" && key != "finalizers"
	})
	const elsewhere = "restored"
	metadata["namespace"] = elsewhere
	metadata["labels"] = object{"velero.io/backup-name": "nightly", "velero.io/restore-name": "nightly-1"}
	assert.NilError(t, create(t.Context(), object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": elsewhere}}))
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "delete", "namespace", elsewhere)
		return err
	})
	assert.NilError(t, create(t.Context(), backup))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=Ready", "--namespace="+elsewhere))
	address := kubectl(t, "get", "vmi", name, "--namespace="+elsewhere, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
	wait.Success(t, "an answer of the restored guest", func(ctx context.Context) error {
		i, err := infoFor(ctx, shell, address)
		if err == nil && i.BootID == before {
			err = errors.New("the former guest answers")
		}
		return err
	})
}

// A VM's pod takes a container for debugging beside the VM.
func TestDebugAVMsPod(t *testing.T) {
	t.Parallel()
	name := made(t, instanceOf("debugged"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=Ready"))
	boot := answerOf(t, name, "")
	pod := strings.TrimSpace(kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "jsonpath={.items[0].metadata.name}"))
	kubectl(t, "debug", pod, "--image="+suite.busybox, "--container=look", "--profile=general", "--", "sh", "-c", "ip addr show; sleep 3600")
	wait.Success(t, "what the container sees of the pod", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "logs", pod, "--container=look")
		if err == nil && !strings.Contains(out, "eth0") {
			err = fmt.Errorf("it sees %q", out)
		}
		return err
	})
	if again := answerOf(t, name, ""); again != boot {
		t.Error("the VM started again")
	}
}
