package lifecycle_test

import (
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// startedVMI makes a pod whose VM, as a VMI describes it, runs.
func (n *node) startedVMI(t *testing.T, vmi string) (id string) {
	t.Helper()
	id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: vmi}), request(0))
	if err != nil {
		t.Fatal(err)
	}
	must(t, n.Start(t.Context(), id))
	n.events.Take()
	return id
}

// restOfVMI is the rest of a VMI with the image's disk.
const restOfVMI = `"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}]}`

// TestWatchdog: QEMU ends when the watchdog powers a guest off, and libvirt gives no
// reason.
func TestWatchdog(t *testing.T) {
	for action, want := range map[string]string{"poweroff": "the guest's watchdog expired", "reset": "QEMU ended unexpectedly"} {
		onNode(t, func(t *testing.T, n *node) {
			n.run(t)
			id := n.startedVMI(t, `{"domain": {"devices": {"watchdog": {"name": "dog", "i6300esb": {"action": "`+action+`"}}}}, `+restOfVMI)
			uuid := n.rec(t, id).Domain.UUID
			n.libvirt.Emit(domain.Event{UUID: uuid, Kind: domain.EventWatchdog})
			time.Sleep(time.Millisecond)
			n.libvirt.End(uuid, domain.ReasonFailed)
			time.Sleep(time.Millisecond)
			n.wantEnd(t, id, 137, "Error", want)
		})
	}
}

// TestStartPaused: the guest waits for its user, and its pod says so.
func TestStartPaused(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.startedVMI(t, `{"startStrategy": "Paused", "domain": {"devices": {}}, `+restOfVMI)
		if got := n.conditions.StateOf(id); got.Status != domain.StatusPaused || got.Reason != domain.ReasonUser {
			t.Errorf("its conditions are of %+v", got)
		}
		state, err := n.libvirt.Observer.State(t.Context(), n.rec(t, id).Domain.UUID)
		if err != nil || state.Status != domain.StatusPaused {
			t.Errorf("libvirtd has %+v, %v", state, err)
		}
	})
}

// TestStopWithoutACPI: a guest without a power button is asked by its agent, once.
func TestStopWithoutACPI(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.startedVMI(t, `{"domain": {"devices": {}, "features": {"acpi": {"enabled": false}}}, `+restOfVMI)
		n.libvirt.SetGuest(n.rec(t, id).Domain.UUID, vmtest.Guest{Obeys: 1})
		must(t, n.Stop(t.Context(), id, 12*time.Second))
		if asked, pressed := n.script.Count("Agents.PowerOff"), n.script.Count("Libvirt.Shutdown"); asked != 1 || pressed != 0 {
			t.Errorf("its agent was asked %d times, its button pressed %d times", asked, pressed)
		}
		n.wantEnd(t, id, 137, "Error", "the VM was powered off")
	})
}
