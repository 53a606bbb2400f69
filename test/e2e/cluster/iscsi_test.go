//go:build cluster

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

// An instance says how its disks reach its guest: this one's is served by its node's tgtd, to it alone
// and for as long as it lives.
func TestAnInstanceHasItsDiskOverISCSI(t *testing.T) {
	t.Parallel()
	const name = "over-iscsi"
	vmi := strangersVMI(name, func(_, _, _ object) {})
	vmi["metadata"].(object)["annotations"] = object{vmspec.AnnotationDiskMode: string(vmspec.ModeISCSI)}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmi,pods")
			t.Log(about)
		}
		if _, err := suite.Kubectl(ctx, "delete", "vmi", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, create(t.Context(), vmi))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	if got := answer(t, kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")); got.Hostname != name {
		t.Errorf("host name: %q", got.Hostname)
	}
	pod := kubectl(t, "get", "pods", "--selector=kubevirt.io/domain="+name, "-o", "jsonpath={.items[0].metadata.name}")
	on := nodeOf(t, pod)
	all, err := on.Targets(t.Context())
	assert.NilError(t, err)
	xml := virsh(t, "dumpxml", pod)
	if len(all) != 1 || len(all[0].Initiators) != 1 || !strings.Contains(xml, all[0].Name) {
		t.Errorf("tgtd serves %v; the machine is\n%s", all, xml)
	}
	kubectl(t, "delete", "vmi", name)
	wait.Success(t, "no target is left", func(ctx context.Context) error {
		all, err := on.Targets(ctx)
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("tgtd serves %v", all)
		}
		return err
	})
}
