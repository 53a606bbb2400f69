package podstatus

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// TestGuestMessage: what a guest says stays JSON and within its bound, and comes back.
func TestGuestMessage(t *testing.T) {
	long := strings.Repeat("\"<", 129)
	g := condition.Guest{AgentVersion: long, Hostname: long,
		OS: &condition.OS{ID: long, PrettyName: long, VersionID: long, Kernel: long, Machine: long}}
	for range 32 {
		g.Interfaces = append(g.Interfaces, condition.Interface{Name: "eth0", MAC: "52:54:00:00:00:01", IPs: []string{"10.0.0.1"}})
	}
	text := guestMessage(g)
	if len(text) > maxGuest {
		t.Errorf("%d bytes", len(text))
	}
	back, err := condition.Parse(text)
	if err != nil || back.Hostname != long || back.OS.Machine != long {
		t.Errorf("%v: %+v", err, back)
	}
	// A card with many addresses takes none away from another one.
	g = condition.Guest{Interfaces: []condition.Interface{{Card: "default"}, {Card: "lan", IPs: []string{"192.0.2.7"}}}}
	for i := range 300 {
		g.Interfaces[0].IPs = append(g.Interfaces[0].IPs, fmt.Sprintf("10.0.%d.1", i))
	}
	back, err = condition.Parse(guestMessage(g))
	if err != nil || len(back.Interfaces) != 2 || len(back.Interfaces[0].IPs) < 100 || len(back.Interfaces[1].IPs) != 1 || len(g.Interfaces[0].IPs) != 300 {
		t.Errorf("%v: %+v", err, back)
	}
	if _, err := condition.Parse("no JSON"); err == nil {
		t.Error("no JSON is no error")
	}
}

// TestEmptyFields: a condition writes them, so that a patch takes an old message away.
func TestEmptyFields(t *testing.T) {
	text, err := json.Marshal(running(false, "").conditions(time.Unix(0, 0))[0])
	if want := `{"type":"nodevirt.io/VMReady","status":"True","reason":"GuestRunning","message":"","lastTransitionTime":"1970-01-01T00:00:00Z"}`; err != nil || string(text) != want {
		t.Errorf("%v: %s, want %s", err, text, want)
	}
}

func TestClip(t *testing.T) {
	for text, want := range map[string]string{"short": "short", "0123456789": "0123456789", "ääääääää": "äää…", "01234567890": "0123456…"} {
		if got := clip(text, 10); got != want || !utf8.ValidString(got) || len(got) > 10 {
			t.Errorf("clip(%q) = %q, want %q", text, got, want)
		}
	}
}

// wantCondition checks one condition of a pod: its status, empty for none, its reason and its message's bound.
func wantCondition(t *testing.T, f Facts, kind, reason, want string) {
	t.Helper()
	got := ""
	for _, c := range f.conditions(time.Unix(0, 0)) {
		if c.Type == kind {
			got = c.Status
			if c.Reason != reason || len(c.Message) > maxMessage {
				t.Errorf("%s: %d bytes of message, reason %s", reason, len(c.Message), c.Reason)
			}
		}
	}
	if got != want {
		t.Errorf("%s: status %q, want %q", reason, got, want)
	}
}

// TestCredentials: the condition is there for VMs with credentials, and True only once these are set.
func TestCredentials(t *testing.T) {
	for reason, want := range map[string]string{
		"": "", condition.ReasonSynchronized: "True", condition.ReasonSyncFailed: "False", condition.ReasonUnsupportedAgent: "False",
	} {
		f := running(true, "")
		if reason != "" {
			f.Credentials = &Credentials{Reason: reason, Message: strings.Repeat("x", maxMessage+1)}
		}
		wantCondition(t, f, condition.AccessCredentialsSynchronized, reason, want)
	}
}

// TestMachineType: a VM that runs has the condition once the type is known.
func TestMachineType(t *testing.T) {
	f := running(true, "")
	wantCondition(t, f, condition.MachineType, "", "")
	f.Machine.Type = "pc-q35-7.2"
	wantCondition(t, f, condition.MachineType, condition.ReasonResolved, "True")
}

// TestVSOCK: a VM with a VSOCK has the condition, with its CID while the VM exists.
func TestVSOCK(t *testing.T) {
	of := func(f Facts) (found Condition) {
		for _, c := range f.conditions(time.Unix(0, 0)) {
			if c.Type == condition.VSOCK {
				found = c
			}
		}
		return found
	}
	if c := of(Facts{Machine: &Machine{}}); c != (Condition{}) {
		t.Errorf("without a VSOCK: %+v", c)
	}
	if c := of(Facts{VSOCK: true, Machine: &Machine{VSOCKCID: 4294967294}}); c.Status != "True" || c.Message != "4294967294" || c.Reason != condition.ReasonCIDAssigned {
		t.Errorf("running: %+v", c)
	}
	if c := of(Facts{VSOCK: true}); c.Status != "False" || c.Message != "" || c.Reason != condition.ReasonCIDReleased {
		t.Errorf("after the end: %+v", c)
	}
}

// TestIdentity: a fork has the condition, also after its end, and True only if its guest renewed its identity.
func TestIdentity(t *testing.T) {
	for reason, want := range map[string]string{"": "", condition.ReasonRenewed: "True", condition.ReasonNoAgent: "False", condition.ReasonNoHook: "False"} {
		var f Facts
		if reason != "" {
			f.Identity = &Identity{Reason: reason, Message: strings.Repeat("x", maxMessage+1)}
		}
		wantCondition(t, f, condition.IdentityRenewed, reason, want)
	}
}
