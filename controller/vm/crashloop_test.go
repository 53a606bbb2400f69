package vm

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// TestNextStart: the condition says when the next start is, also while the failed instance is being deleted.
func TestNextStart(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for name, deleted := range map[string]*metav1.Time{"to be deleted": nil, "being deleted": &at} {
		vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "1", DeletionTimestamp: deleted}}
		vmi.Status.Phase = kubevirt.Failed
		c := crashLoop(&kubevirt.VirtualMachine{}, outcome{
			vmi: vmi, decision: decision{stop: deleted == nil},
			startFailure: &kubevirt.VirtualMachineStartFailure{ConsecutiveFailCount: 1, LastFailedVMIUID: "1", RetryAfterTimestamp: &at},
		})
		assert.Assert(t, c != nil, name)
		if !strings.HasSuffix(c.Message, " The next start is at 2026-01-02T03:04:05Z.") {
			t.Errorf("%s: %s", name, c.Message)
		}
	}
}
