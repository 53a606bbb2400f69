//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestAPersistentTPMMoves: a TPM that is kept on a PVC of one node moves with its guest to another PVC, which a restart of the
// VM uses.
func TestAPersistentTPMMoves(t *testing.T) {
	t.Parallel()
	const name = "moving-tpm"
	folders := map[string]string{}
	for _, node := range []string{steady, harmed} {
		folders[node] = t.TempDir()
		persistentVolume(t, node, "tpm-"+node, "", "Filesystem", folders[node], "16Mi") // that of PVCs without a class
	}
	made(t, machine(strangersVMI(name, func(_, _, devices object) { devices["tpm"] = object{"persistent": true} })))
	boot := answerOf(t, name, "")
	from := vmiField(t, name, ".status.nodeName")
	const claim = `.status.volumeStatus[?(@.name=="persistent-state-for-this-vm")].persistentVolumeClaimInfo.claimName`
	former := vmiField(t, name, claim)
	made(t, object{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": object{"name": name}, "spec": object{"vmiName": name}})
	assert.NilError(t, suite.WaitFor(t.Context(), "vmim/"+name, "jsonpath={.status.phase}=Succeeded"))
	to := vmiField(t, name, ".status.nodeName")
	assert.Assert(t, to != from)
	assert.Equal(t, answerOf(t, name, ""), boot)
	state := func(node string) []byte {
		data, err := os.ReadFile(filepath.Join(folders[node], "tpm", "tpm2-00.permall"))
		assert.NilError(t, err)
		return data
	}
	if !bytes.Equal(state(to), state(from)) {
		t.Error("the TPM's state differs after the move")
	}
	wait.Success(t, "the former PVC goes", func(ctx context.Context) error {
		left, err := suite.Kubectl(ctx, "get", "pvc", former, "--ignore-not-found", "-o", "name")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	moved := vmiField(t, name, claim)
	assert.Assert(t, moved != "" && moved != former)
	kubectl(t, "delete", "vmi", name) // it always runs
	answerOf(t, name, boot)
	assert.Equal(t, vmiField(t, name, claim), moved)
	assert.Equal(t, vmiField(t, name, ".status.nodeName"), to)
}
