package subresources

import (
	"strings"
	"testing"

	kubevirt "kubevirt.io/api/core/v1"

	vmis "github.com/nodevirt/nodevirt/controller/vmi"
)

// TestUnheard: a start of a VM whose guest has left its node does not ask for that node's taint, which would do harm.
func TestUnheard(t *testing.T) {
	for reason, want := range map[string]string{
		vmis.ReasonNodeUnresponsive: "taint it with node.kubernetes.io/out-of-service",
		vmis.ReasonGuestElsewhere:   "may run elsewhere (GuestElsewhere): see condition Ready of VMI web",
		vmis.ReasonGuestMissing:     "may run elsewhere (GuestMissing): see condition Ready of VMI web",
	} {
		vmi := new(kubevirt.VirtualMachineInstance)
		vmi.Name, vmi.Status.Reason = "web", reason
		err := new(call).unheard(vmi)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(want, "elsewhere") && strings.Contains(err.Error(), "taint") {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
