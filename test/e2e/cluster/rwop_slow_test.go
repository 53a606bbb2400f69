//go:build cluster && slow

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestReadWriteOncePod: a VM restarts and keeps its data on a PVC that one pod may use, and waits with the scheduler's
// words while an ordinary pod uses it. A second VM waits for the first, and no migration begins.
func TestReadWriteOncePod(t *testing.T) {
	t.Parallel()
	const name, other, user = "only", "only-other", "only-user"
	made(t, object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": object{"name": name, "annotations": object{vmspec.AnnotationDiskOrigin: suite.tiny}},
		"spec": object{
			"storageClassName": "local", "volumeMode": "Block", "accessModes": []string{"ReadWriteOncePod"},
			"resources": object{"requests": object{"storage": "128Mi"}},
		},
	})
	made(t, machine(onPVC(name, name)))
	write(t, addressOf(t, name), "kept")
	first := answerOf(t, name, "")

	made(t, onPVC(other, name))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+other, `jsonpath={.status.conditions[?(@.type=="Synchronized")].reason}=PVCInUse`))
	kubectl(t, "delete", "vmi", other)

	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=LiveMigratable=false"))
	const refusal = "Reason: DisksNotLiveMigratable, Message: cannot migrate VMI: PVC only is not shared"
	out, err := sent(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": object{"name": name},
		"spec": object{"vmiName": name},
	}, "create", "-f", "-")
	if err == nil || !strings.Contains(out, refusal) {
		t.Errorf("a migration: %v: %s; want %q", err, out, refusal)
	}

	v := &virtctl{t: t, seen: map[string]bool{}}
	v.works("restart "+name, "was scheduled to restart")
	answerOf(t, name, first)
	asked(t, addressOf(t, name), "/cgi-bin/disk", "kept")

	v.works("stop "+name, "was scheduled to stop")
	kubectl(t, "wait", "vmi/"+name, "--for=delete", "--timeout=120s")
	pod := plainPod(user, suite.busybox, "sleep", "1000000")
	pod["spec"].(object)["volumes"] = []object{{"name": "disk", "persistentVolumeClaim": object{"claimName": name}}}
	container(pod)["volumeDevices"] = []object{{"name": "disk", "devicePath": "/dev/disk"}}
	ready(t, pod)
	v.works("start "+name, "was scheduled to start")
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "jsonpath={.status.printableStatus}=ErrorUnschedulable"))
	wait.Success(t, "the scheduler's words", func(ctx context.Context) error {
		text, err := suite.Kubectl(ctx, "describe", "vm", name)
		if err == nil && !strings.Contains(text, "ReadWriteOncePod access mode already in-use by another pod") {
			err = fmt.Errorf("the VM says\n%s", text)
		}
		return err
	})
	kubectl(t, "delete", "pod", user)
	asked(t, addressOf(t, name), "/cgi-bin/disk", "kept")
	kubectl(t, "delete", "vm", name) // before the PVC
}
