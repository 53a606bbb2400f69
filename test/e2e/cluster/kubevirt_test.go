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
