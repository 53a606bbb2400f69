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

// TestTheLabOfKubeVirtsGuide: a VM as beginners are given one, with 64 MB, started and entered by virtctl.
// What it boots says so in 64 MB too.
func TestTheLabOfKubeVirtsGuide(t *testing.T) {
	t.Parallel()
	const name = "testvm"
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vm,vmi", name)
			t.Log(about)
		}
		if _, err := suite.Kubectl(ctx, "delete", "vm", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	disk := func(name string) object { return object{"name": name, "disk": object{"bus": "virtio"}} }
	assert.NilError(t, create(t.Context(), object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{
			"runStrategy": "Halted",
			"template": object{
				"metadata": object{"labels": object{"kubevirt.io/size": "small", "kubevirt.io/domain": name}},
				"spec": object{
					"domain": object{
						"devices": object{
							"disks":      []object{disk("containerdisk"), disk("cloudinitdisk")},
							"interfaces": []object{{"name": "default", "masquerade": object{}}},
						},
						"resources": object{"requests": object{"memory": "64M"}},
					},
					"networks": []object{{"name": "default", "pod": object{}}},
					"volumes": []object{
						{"name": "containerdisk", "containerDisk": object{"image": suite.tiny}},
						{"name": "cloudinitdisk", "cloudInitNoCloud": object{"userDataBase64": "SGkuCg=="}},
					},
				},
			},
		},
	}))
	v := &virtctl{t: t, seen: map[string]bool{}}
	v.works("start "+name, "VM testvm was scheduled to start")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	assert.NilError(t, says(t.Context(), name, ""))
}

// TestTheExampleOfAnInstanceType: the guest has what the type and the preference say.
func TestTheExampleOfAnInstanceType(t *testing.T) {
	t.Parallel()
	apply(t, "instancetype.yaml")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/typed", "condition=Ready"))
	got := kubectl(t, "get", "vmi", "typed", "-o",
		"jsonpath={.spec.domain.cpu.cores} {.spec.domain.memory.guest} {.spec.domain.devices.disks[0].disk.bus}")
	if got != "2 256Mi virtio" {
		t.Errorf("cores, memory and bus: %q", got)
	}
	if got := kubectl(t, "get", "vm", "typed", "-o", "jsonpath={.status.instancetypeRef.kind}"); got != "VirtualMachineClusterInstancetype" {
		t.Errorf("instancetypeRef: %q", got)
	}
}

// says waits until a text is on a guest's console; for its first line, if there is none.
func says(ctx context.Context, instance, text string) error {
	return wait.Do(ctx, func(ctx context.Context) error {
		log, err := suite.Kubectl(ctx, "logs", "--tail=20", "--selector="+byName+"="+instance)
		if err == nil && (strings.TrimSpace(log) == "" || !strings.Contains(log, text)) {
			err = fmt.Errorf("%s has not said %q but %q", instance, text, log)
		}
		return err
	})
}
