//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestLinksOfARunningVM: an edit of a VM, and one of its instance, takes the link from a card of the running guest
// and restores it. The instance reports the state, and the VM needs no restart.
func TestLinksOfARunningVM(t *testing.T) {
	t.Parallel()
	name := made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": "linked"},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"domain": object{
				"memory": object{"guest": "128Mi"},
				"devices": object{
					"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
					"interfaces": []object{{"name": "default", "masquerade": object{}, "state": "down"}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes":  []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}},
		}}},
	})
	has := func(state, carrier string) {
		t.Helper()
		assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.interfaces[0].linkState}="+state))
		wait.Success(t, "the guest's carrier", func(context.Context) error {
			if got := inGuest(t, name, "cat /sys/class/net/eth0/carrier"); got != carrier {
				return fmt.Errorf("%q, want %q", got, carrier)
			}
			return nil
		})
		restart := kubectl(t, "get", "vm", name, "-o", `jsonpath={.status.conditions[?(@.type=="RestartRequired")].status}`)
		assert.Equal(t, restart, "")
	}
	edit := func(kind, path, state string) {
		t.Helper()
		kubectl(t, "patch", kind, name, "--type=json", "-p",
			fmt.Sprintf(`[{"op": "add", "path": "%s/domain/devices/interfaces/0/state", "value": %q}]`, path, state))
	}
	has("down", "0")
	edit("vm", "/spec/template/spec", "up")
	has("up", "1")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, `jsonpath={.status.interfaces[0].ipAddress}`))
	edit("vm", "/spec/template/spec", "down")
	has("down", "0")
	edit("vmi", "/spec", "up")
	has("up", "1")
	if out, err := suite.Kubectl(t.Context(), "patch", "vmi", name, "--type=json", "-p",
		`[{"op": "add", "path": "/spec/domain/devices/interfaces/0/model", "value": "e1000e"}]`); err == nil || !strings.Contains(err.Error(), "an instance can't be changed") {
		t.Errorf("another model: %v: %s", err, out)
	}
}
