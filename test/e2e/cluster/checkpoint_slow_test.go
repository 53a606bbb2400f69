//go:build cluster && slow

package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// remembering is an instance of an image on a node.
func remembering(name, image, node string) object {
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": object{"name": name},
		"spec": object{
			"nodeSelector": object{"kubernetes.io/hostname": node},
			"domain": object{
				"memory": object{"guest": "128Mi"},
				"devices": object{
					"disks":      []object{{"name": "boot", "disk": object{"bus": "virtio"}}},
					"interfaces": []object{{"name": "default", "masquerade": object{}}},
				},
			},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes":  []object{{"name": "boot", "containerDisk": object{"image": image}}},
		},
	}
}

// TestAKubeletsCheckpoint: the kubelet's API saves the VM of a pod, and an instance of an image with that
// archive goes on where the guest was, on another node. The guest goes on, too.
func TestAKubeletsCheckpoint(t *testing.T) {
	t.Parallel()
	const name, later = "checkpointed", "checkpointed-later"
	made(t, remembering(name, suite.tiny, "node-1"))
	addressOf(t, name)
	boot := answerOf(t, name, "")
	pod := kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "jsonpath={.items[0].metadata.name}")

	text := kubectl(t, "create", "--raw", "/api/v1/nodes/node-1/proxy/checkpoint/default/"+pod+"/compute", "-f", "/dev/null")
	var reply struct{ Items []string }
	assert.NilError(t, json.Unmarshal([]byte(text), &reply))
	assert.Equal(t, len(reply.Items), 1, text)
	content, err := suite.Nodes()[0].Output(t.Context(), "cat", reply.Items[0])
	assert.NilError(t, err)
	_, err = suite.Nodes()[0].Output(t.Context(), "rm", reply.Items[0])
	assert.NilError(t, err)
	archive := filepath.Join(t.TempDir(), "checkpoint.tar")
	assert.NilError(t, os.WriteFile(archive, []byte(content), 0o600))

	files, err := images.Extract(archive, t.TempDir())
	assert.NilError(t, err)
	disk, err := guest.Tiny(t.Context(), suite.Control().GuestOptions())
	assert.NilError(t, err)
	image, err := images.RegistryDisk(disk, images.DiskOptions{Above: [][]images.File{files}})
	assert.NilError(t, err)
	ref, err := suite.Push(t.Context(), "checkpointed:1", image)
	assert.NilError(t, err)
	made(t, remembering(later, ref, "node-2"))
	addressOf(t, later)
	assert.Equal(t, answerOf(t, later, ""), boot, "the guest booted again")
	assert.Equal(t, answerOf(t, name, ""), boot, "the saved guest booted again")
}
