//go:build cluster && slow

package cluster

import (
	"debug/elf"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestMemoryDump: the memory of a guest that goes on is in a file of a PVC, which a second dump
// replaces, and which stays when the association ends.
func TestMemoryDump(t *testing.T) {
	t.Parallel()
	const name = "dumped"
	folder := t.TempDir()
	sizedPVC(t, "memory", "Filesystem", folder, "512Mi")
	made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"terminationGracePeriodSeconds": 60,
			"nodeSelector":                  object{"kubernetes.io/hostname": "node-1"},
			"domain": object{
				"memory":  object{"guest": "128Mi"},
				"devices": object{"disks": []object{{"name": "boot", "disk": object{"bus": "virtio"}}}},
			},
			"volumes": []object{{"name": "boot", "containerDisk": object{"image": suite.tiny}}},
		}}},
	})
	v := &virtctl{t: t, seen: map[string]bool{}}
	addressOf(t, name)
	before := answerOf(t, name, "")
	file := ""
	for _, claim := range []string{" --claim-name=memory", ""} {
		v.works("memory-dump get "+name+claim, "Successfully submitted memory dump request")
		assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, `jsonpath={.status.memoryDumpRequest.phase}=Completed`))
		now := kubectl(t, "get", "vm", name, "-o", "jsonpath={.status.memoryDumpRequest.fileName}")
		assert.Assert(t, now != file && strings.HasPrefix(now, name+"-memory-"), now)
		file = now
		all, err := filepath.Glob(filepath.Join(folder, "*.memory.dump"))
		assert.NilError(t, err)
		assert.DeepEqual(t, all, []string{filepath.Join(folder, file)})
		core, err := elf.Open(all[0])
		assert.NilError(t, err)
		assert.Equal(t, core.Type, elf.ET_CORE)
		assert.NilError(t, core.Close())
	}
	assert.Equal(t, kubectl(t, "get", "pvc", "memory", "-o", `jsonpath={.metadata.annotations.kubevirt\.io/memory-dump}`), file)
	v.works("memory-dump remove "+name, "Successfully submitted remove memory dump association")
	wait.Until(t, "no association", func() bool {
		return kubectl(t, "get", "vm", name, "-o", "jsonpath={.status.memoryDumpRequest}{.spec.template.spec.volumes[*].name}") == "boot"
	})
	_, err := elf.Open(filepath.Join(folder, file))
	assert.NilError(t, err)
	assert.Equal(t, answerOf(t, name, ""), before, "the guest booted again")
	kubectl(t, "delete", "vm", name) // before the PVC
}
