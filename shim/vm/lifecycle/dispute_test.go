package lifecycle_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// attached reports whether a container's disks are reserved.
func (n *node) attached(id string) bool {
	return slices.Contains(n.disks.Left(), "attached disks of "+id)
}

// forgotten makes a VM that runs, and that libvirtd has forgotten.
func (n *node) forgotten(t *testing.T) (id string, pid int) {
	t.Helper()
	n.run(t)
	id = n.started(t, "pod")
	pid = n.libvirt.Forget(n.rec(t, id).Domain.UUID)
	n.libvirt.SetAway(true)
	n.libvirt.SetAway(false) // a libvirtd that has restarted
	time.Sleep(time.Minute)
	return id, pid
}

// TestForgottenGuest: a guest whose QEMU runs has not ended, whatever libvirt says. Nothing of it is released, and
// its pod gets no second VM.
func TestForgottenGuest(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, pid := n.forgotten(t)
		v, err := n.table.Find(id)
		must(t, err)
		r := n.rec(t, id)
		if r.State != record.Running || !n.attached(id) || r.Network == nil || n.events.Take() != "" {
			t.Errorf("it is %s, attached: %t, network %v", r.State, n.attached(id), r.Network)
		}
		if text := v.Dispute(); !strings.Contains(text, "libvirt no longer knows the guest") || !strings.Contains(text, "delete its pod") {
			t.Errorf("the report says %q", text)
		}
		if s := n.conditions.StateOf(id); s.Status != domain.StatusRunning {
			t.Errorf("the pod's condition says %+v", s)
		}
		if n.log.count("witnesses disagree") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		if _, err := n.Create(t.Context(), r.SandboxID, request(1)); !errors.Is(err, vmerrors.ErrExists) {
			t.Errorf("a second VM in its pod: %v", err)
		}
		n.restart(t) // a new shim sees the same
		n.run(t)
		n.libvirt.SetAway(true)
		n.libvirt.SetAway(false)
		time.Sleep(time.Minute)
		if r := n.rec(t, id); r.State != record.Running || !n.attached(id) {
			t.Errorf("after a restart it is %s", r.State)
		}
		n.libvirt.Kill(pid)
		time.Sleep(time.Minute)
		if r := n.wantEnd(t, id, 137, "Error", "QEMU ended unexpectedly"); r.Unclean || len(n.running()) > 0 {
			t.Errorf("left %v", n.running())
		}
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// TestShutOffGuestRuns: the definition of a domain outlives its status file, and libvirt reports the domain as shut off.
func TestShutOffGuestRuns(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		uuid := n.rec(t, id).Domain.UUID
		n.libvirt.Forget(uuid)
		must(t, n.libvirt.Lifecycle.Define(t.Context(), "<domain><name>same</name><uuid>"+uuid+"</uuid></domain>"))
		n.libvirt.Emit(domain.Event{Kind: domain.EventResync})
		time.Sleep(time.Minute)
		v, err := n.table.Find(id)
		must(t, err)
		if r := v.Record(); r.State != record.Running || !strings.Contains(v.Dispute(), "libvirt reports the guest as ended") {
			t.Errorf("it is %s: %q", r.State, v.Dispute())
		}
	})
}

// TestStopOfAForgottenGuest: the order is about the guest.
func TestStopOfAForgottenGuest(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *node, string) error{
		"with grace": func(t *testing.T, n *node, id string) error { return n.Stop(t.Context(), id, time.Minute) },
		"at once":    func(t *testing.T, n *node, id string) error { return n.Stop(t.Context(), id, 0) },
		"its pod":    func(t *testing.T, n *node, id string) error { return n.StopIn(t.Context(), n.rec(t, id).SandboxID) },
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				id, _ := n.forgotten(t)
				must(t, end(t, n, id))
				if r := n.wantEnd(t, id, 137, "Error", ""); r.Unclean || len(n.running()) > 0 {
					t.Errorf("left %v", n.running())
				}
				must(t, n.Remove(t.Context(), id))
				n.wantNothing(t)
			})
		})
	}
}

// TestRemoveOfAGuestThatStays: while QEMU does not end, nothing is released, and the removal fails.
func TestRemoveOfAGuestThatStays(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, _ := n.forgotten(t)
		n.libvirt.Witness.Slow = true
		wantError(t, n.Remove(t.Context(), id), "stop VM container", "it is still there")
		if r := n.rec(t, id); r.State != record.Running || !n.attached(id) {
			t.Errorf("it is %s", r.State)
		}
		n.libvirt.Witness.Slow = false
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// TestUndoWhileQEMUMayRun: of a start that failed, nothing is released before QEMU has ended.
func TestUndoWhileQEMUMayRun(t *testing.T) {
	for _, call := range []string{"Libvirt.Destroy", "Libvirt.Undefine", "Witness.End"} {
		t.Run(call, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.run(t)
				id := n.created(t, "pod")
				n.script.Fail("Network.Connect", errors.New("no such device"))
				n.script.Fail(call, errors.New("it hangs"))
				if call != "Libvirt.Destroy" {
					n.libvirt.Witness.Slow = true
				}
				wantError(t, n.Start(t.Context(), id), "no such device")
				r := n.rec(t, id)
				if call == "Libvirt.Destroy" && (!r.Unclean || !n.attached(id) || r.Network == nil) {
					t.Errorf("released: unclean %t, attached %t", r.Unclean, n.attached(id))
				}
				n.script.Fail(call, nil)
				n.libvirt.Witness.Slow = false
				time.Sleep(2 * time.Minute)
				if r := n.rec(t, id); r.Unclean || len(n.running()) > 0 {
					t.Errorf("left %v", n.running())
				}
			})
		})
	}
}

// TestProcessesAreNotKnown: without an answer nothing is released.
func TestProcessesAreNotKnown(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		n.script.Fail("Witness.Processes", errors.New("permission denied"))
		n.libvirt.End(n.rec(t, id).Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Minute)
		if r := n.rec(t, id); r.State != record.Running || !n.attached(id) {
			t.Errorf("it is %s", r.State)
		}
		n.script.Fail("Witness.Processes", nil)
		time.Sleep(time.Minute)
		n.wantEnd(t, id, 0, "Completed", "")
	})
}
