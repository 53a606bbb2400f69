//go:build cluster && slow

package nodes

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestMemoryOnAnotherNode: a guest goes on from a snapshot with its memory on another node, with what it had written
// to its disk before, and without what it wrote after.
func TestMemoryOnAnotherNode(t *testing.T) {
	whole(t)
	const name = "remembered"
	create(t, vm(name, func(spec object) {
		rather(harmed)(spec)
		spec["domain"].(object)["devices"].(object)["interfaces"] = []object{{"name": "default", "masquerade": object{}}}
	}))
	boot := answer(t, name, "")
	assert.Equal(t, vmiField(t, name, ".status.nodeName"), harmed)
	write(t, name, "before")
	source := object{"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name}
	create(t, object{
		"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
		"metadata": object{"name": name, "annotations": object{
			"nodevirt.io/memory": "true", "nodevirt.io/memory-storage-class": "local", "nodevirt.io/memory-size": "512Mi",
		}},
		"spec": object{"source": source},
	})
	waitFor(t, "vmsnapshot/"+name, "jsonpath={.status.readyToUse}=true")
	write(t, name, "after")

	t.Cleanup(func() { undo(t, "uncordon", harmed) })
	kubectl(t, "cordon", harmed)
	create(t, object{
		"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": object{"name": name},
		"spec": object{"target": source, "virtualMachineSnapshotName": name, "targetReadinessPolicy": "StopTarget"},
	})
	waitFor(t, "vmrestore/"+name, "jsonpath={.status.complete}=true")
	kubectl(t, "patch", "vm", name, "--type=merge", "--patch", `{"spec":{"runStrategy":"Always"}}`)
	waitFor(t, "vm/"+name, "condition=Ready")
	assert.Equal(t, answer(t, name, ""), boot, "the guest booted again")
	assert.Equal(t, vmiField(t, name, ".status.nodeName"), steady)
	holds(t, name, "before")
	kubectl(t, "delete", "vm", name) // before the snapshot
}
