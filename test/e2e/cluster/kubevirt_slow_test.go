//go:build cluster && slow

package cluster

import (
	"context"
	"testing"

	"gotest.tools/v3/assert"
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
