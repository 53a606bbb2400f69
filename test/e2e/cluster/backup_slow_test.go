//go:build cluster && slow

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// backUp returns an object as a tool for backups keeps it: without what the API server assigns, but with its
// owners, finalizers, labels and annotations.
func backUp(t *testing.T, of ...string) object {
	t.Helper()
	var o object
	assert.NilError(t, json.Unmarshal([]byte(kubectl(t, append([]string{"get", "-o", "json"}, of...)...)), &o))
	metadata := o["metadata"].(object)
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "deletionTimestamp"} {
		delete(metadata, field)
	}
	delete(o, "status")
	return o
}

// TestRestoredWithItsInstanceAndPod: a tool that knows nothing of VMs restores the pod, the VMI and the VM, in
// this order and with owners that no longer exist. The API server refuses the pod, which the controller did not
// create; the VMI goes with its owner, and the VM runs with a new one.
func TestRestoredWithItsInstanceAndPod(t *testing.T) {
	t.Parallel()
	name := made(t, machineOf("restored-whole"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "condition=Ready"))
	former := answerOf(t, name, "")
	stale := vmiField(t, name, ".metadata.ownerReferences[0].uid")
	pod := backUp(t, "pod", strings.TrimSpace(kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "jsonpath={.items[0].metadata.name}")))
	vmi, vm := backUp(t, "vmi", name), backUp(t, "vm", name)
	delete(pod["spec"].(object), "nodeName")
	kubectl(t, "delete", "vm", name, "--cascade=foreground")

	if out, err := sent(t, pod, "create", "-f", "-"); err == nil || !strings.Contains(out, "only nodevirt's controller sets") {
		t.Errorf("the pod is restored: %v: %s", err, out)
	}
	for _, o := range []object{vmi, vm} {
		out, err := sent(t, o, "create", "-f", "-")
		if err != nil {
			t.Fatalf("restore %s: %v: %s", o["kind"], err, out)
		}
	}
	uid := kubectl(t, "get", "vm", name, "-o", "jsonpath={.metadata.uid}")
	wait.Success(t, "a VMI of the restored VM", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "vmi", name, "-o", "jsonpath={.metadata.ownerReferences[0].uid}")
		if err == nil && out != uid {
			err = fmt.Errorf("its owner is %s; the VM is %s, the former one was %s", out, uid, stale)
		}
		return err
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "condition=Ready"))
	answerOf(t, name, former)
	wait.Success(t, "one pod", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "pods", "--selector="+byName+"="+name, "-o", "name")
		if err == nil && len(strings.Fields(out)) != 1 {
			err = errors.New(out)
		}
		return err
	})
}
