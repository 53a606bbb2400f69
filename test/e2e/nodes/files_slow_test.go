//go:build cluster && slow

package nodes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestAFileSystemMoves: a guest moves to another node and back whose disk is a file, and whose TPM and UEFI variables
// are files, on file systems that both nodes mount. What it wrote is there, and it boots on the other node.
func TestAFileSystemMoves(t *testing.T) {
	whole(t)
	const name, data, first, second = "filed", "filed-data", "01500001", "01500002"
	image, err := clustertest.PushDisk(t.Context(), suite.Cluster, "tiny-uefi:1", guest.TinyWithUEFI)
	assert.NilError(t, err)
	create(t, object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": data},
		"spec": object{
			"storageClassName": "local", "volumeMode": "Filesystem", "accessModes": []string{"ReadWriteMany"},
			"resources": object{"requests": object{"storage": "128Mi"}},
		},
	})
	o := movable(name, name)
	spec := o["spec"].(object)["template"].(object)["spec"].(object)
	domain := spec["domain"].(object)
	domain["memory"] = object{"guest": "384Mi"}
	domain["firmware"] = object{"bootloader": object{"efi": object{"secureBoot": false, "persistent": true}}}
	domain["devices"].(object)["tpm"] = object{"persistent": true}
	spec["volumes"] = []object{
		{"name": "boot", "containerDisk": object{"image": image}},
		{"name": "data", "persistentVolumeClaim": object{"claimName": data}},
	}
	m := moverOf(t, o)
	watchRunning(t)
	state := kubectl(t, "get", "pvc", "--selector="+pod.StateLabel+"="+name, "-o", "jsonpath={.items[*].metadata.name} {.items[*].spec.volumeName}")
	state, volume, _ := strings.Cut(state, " ")
	tpm := guest.TPM{Run: func(line string) string { return m.sh(t, line) }}
	assert.NilError(t, tpm.Store(first, "the-key!"))
	booted := boots(t, m.at, volume)

	m.move(t)
	for _, pvc := range []string{data, state} {
		leftFor(t, pvc, m.at)
	}
	assert.Equal(t, tpm.Stored(first), "the-key!")
	assert.NilError(t, tpm.Store(second, "another!"))
	m.intact(t)
	m.sh(t, "(sleep 1; reboot -f) >/dev/null 2>&1 </dev/null &")
	m.boot = answer(t, name, m.boot)
	if now := boots(t, m.at, volume); now <= booted {
		t.Errorf("the UEFI variables count %d boots, before %d", now, booted)
	}
	m.writes(t)

	m.move(t)
	assert.Equal(t, tpm.Stored(first)+tpm.Stored(second), "the-key!another!")
	m.intact(t)
	kubectl(t, "delete", "vm", name) // before the PVC
}

// leftFor waits until the volume of a PVC is attached to no node but one.
func leftFor(t *testing.T, pvc, node string) {
	t.Helper()
	wait.Success(t, "a volume that is left for "+node, func(ctx context.Context) error {
		at, err := attachedTo(ctx, pvc)
		if err == nil && at != node {
			err = fmt.Errorf("the volume of %s is attached to %s", pvc, at)
		}
		return err
	})
}

// boots returns how many counters the firmware of a VM has put into its UEFI variables, in a volume on a node: one at
// each boot.
func boots(t *testing.T, node, volume string) int {
	t.Helper()
	text, err := suite.Node(node).Output(t.Context(), "sh", "-c", "cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/"+volume+"/mount/uefi-variables")
	assert.NilError(t, err)
	return strings.Count(text, "M\x00T\x00C\x00")
}
