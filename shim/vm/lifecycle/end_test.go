package lifecycle_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

// TestGuestEnds: each way in which a guest ends, as the container's status says it.
func TestGuestEnds(t *testing.T) {
	const unexpected = "QEMU ended unexpectedly: see libvirt's log of domain default_pod_"
	for name, c := range map[string]struct {
		reason        domain.Reason
		panicked      bool
		oomKills      uint64
		code          int32
		word, message string
	}{
		"powered off by the guest": {reason: domain.ReasonShutdown, word: "Completed"},
		"powered off":              {reason: domain.ReasonDestroyed, code: 137, word: "Error", message: "the VM was powered off"},
		"QEMU died":                {reason: domain.ReasonCrashed, code: 137, word: "Error", message: unexpected},
		"libvirtd lost it":         {reason: domain.ReasonDaemon, code: 137, word: "Error", message: unexpected},
		"panic":                    {reason: domain.ReasonCrashed, panicked: true, code: 134, word: "GuestPanicked", message: "the guest's kernel panicked"},
		"out of memory":            {reason: domain.ReasonCrashed, oomKills: 1, code: 137, word: "OOMKilled", message: "QEMU needed more memory"},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.run(t)
				id := n.started(t, "pod")
				uuid := n.rec(t, id).Domain.UUID
				n.groups.SetUse(id, cgroup.Stats{}, c.oomKills)
				if c.panicked {
					n.libvirt.Emit(domain.Event{UUID: uuid, Kind: domain.EventCrashed, Reason: domain.ReasonCrashed})
					time.Sleep(time.Millisecond)
				}
				n.libvirt.End(uuid, c.reason)
				time.Sleep(time.Millisecond)
				r := n.wantEnd(t, id, c.code, c.word, c.message)
				if r.Unclean || r.Domain.PID != 0 || r.Network != nil || len(n.running()) > 0 {
					t.Errorf("left %v, record %+v", n.running(), r)
				}
				if got := n.events.Take(); got != "stopped" {
					t.Errorf("events %q", got)
				}
				must(t, n.Remove(t.Context(), id))
				n.wantNothing(t)
			})
		})
	}
}

// TestEndWithTheNode: QEMU did not crash if the node lost power, was reset or reinstalled since the guest started. An end
// whose reason libvirt knows keeps it.
func TestEndWithTheNode(t *testing.T) {
	for name, c := range map[string]struct {
		reason        domain.Reason
		booted        time.Duration // after the guest's start
		before, after string        // the names of the node's run at the start and at the end
		code          int32
		word, message string
	}{
		"reset":                   {domain.ReasonCrashed, time.Minute, "a", "b", 137, "NodeShutdown", "the node restarted without shutting the VM down"},
		"booted before":           {domain.ReasonCrashed, -time.Minute, "a", "a", 137, "Error", "QEMU ended unexpectedly"},
		"clock set forward":       {domain.ReasonCrashed, time.Minute, "a", "a", 137, "Error", "QEMU ended unexpectedly"},
		"reset, clock set back":   {domain.ReasonCrashed, -time.Minute, "a", "b", 137, "NodeShutdown", "the node restarted without shutting the VM down"},
		"reset, older record":     {domain.ReasonCrashed, time.Minute, "", "b", 137, "NodeShutdown", "the node restarted without shutting the VM down"},
		"older record":            {domain.ReasonCrashed, -time.Minute, "", "b", 137, "Error", "QEMU ended unexpectedly"},
		"no name":                 {domain.ReasonCrashed, -time.Minute, "a", "", 137, "Error", "QEMU ended unexpectedly"},
		"powered off, by libvirt": {domain.ReasonDestroyed, time.Minute, "a", "b", 137, "Error", "the VM was powered off"},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.run(t)
				n.bootID = c.before
				id := n.started(t, "pod")
				r := n.rec(t, id)
				n.booted, n.bootID = r.StartedAt.Add(c.booted), c.after
				n.libvirt.End(r.Domain.UUID, c.reason)
				time.Sleep(time.Millisecond)
				n.wantEnd(t, id, c.code, c.word, c.message)
				must(t, n.Remove(t.Context(), id))
			})
		})
	}
}

// TestEndWithPluggedDisks: the disks that a VM got while it ran, and the dump of its memory, end
// with its guest.
func TestEndWithPluggedDisks(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		v, err := n.table.Find(id)
		must(t, err)
		must(t, n.table.Put(v, v.Record().WithPlugged(record.PluggedDisk{State: record.Attached}).
			WithMemoryDump(record.MemoryDump{State: record.DumpWriting})))
		n.libvirt.End(v.Record().Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Millisecond)
		if r := n.wantEnd(t, id, 0, "Completed", ""); r.Unclean || len(r.Plugged) > 0 || r.MemoryDump != nil {
			t.Errorf("record %+v", r)
		}
	})
}

// TestSuspended: a guest that its node ended because its memory is saved has not failed. One whose save
// was not complete has.
func TestSuspended(t *testing.T) {
	for _, complete := range []bool{true, false} {
		onNode(t, func(t *testing.T, n *node) {
			n.run(t)
			id := n.started(t, "pod")
			v, err := n.table.Find(id)
			must(t, err)
			r := v.Record()
			r.Saving = &record.Saving{Suspend: true, Complete: complete}
			must(t, n.table.Put(v, r))
			n.libvirt.End(r.Domain.UUID, domain.ReasonDestroyed)
			time.Sleep(time.Millisecond)
			if complete {
				n.wantEnd(t, id, 0, "Suspended", "the guest's memory is saved")
			} else {
				n.wantEnd(t, id, 137, "Error", "the VM was powered off")
			}
		})
	}
}

// TestEndWithoutAnEvent: libvirtd sends none for a QEMU that ended before a new
// libvirtd had found it again.
func TestEndWithoutAnEvent(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) { // that does not watch events
		id := n.started(t, "pod")
		n.script.Fail("Libvirt.State", errors.New("not now"))
		n.libvirt.End(n.rec(t, id).Domain.UUID, domain.ReasonFailed)
		time.Sleep(20 * time.Second)
		if r := n.rec(t, id); r.State != record.Running {
			t.Errorf("it is %s: libvirtd did not say that it ended", r.State)
		}
		n.script.Fail("Libvirt.State", nil)
		time.Sleep(time.Minute)
		n.wantEnd(t, id, 137, "Error", "QEMU ended unexpectedly")
		asked := n.script.Count("Libvirt.State")
		time.Sleep(time.Hour)
		if n.script.Count("Libvirt.State") != asked {
			t.Error("libvirtd is asked about a VM that has ended")
		}
	})
}

// TestDomainIsLost: a domain that libvirtd does not know any more has ended.
func TestDomainIsLost(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		n.libvirt.Lose(n.rec(t, id).Domain.UUID)
		time.Sleep(5 * time.Second)
		n.wantEnd(t, id, 137, "Error", "QEMU ended unexpectedly")
	})
}

// TestEndWhileLibvirtdIsAway: the next connection reports it.
func TestEndWhileLibvirtdIsAway(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		n.libvirt.SetAway(true)
		n.libvirt.End(n.rec(t, id).Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Minute)
		if r := n.rec(t, id); r.State != record.Running {
			t.Errorf("it is %s", r.State)
		}
		n.libvirt.SetAway(false)
		time.Sleep(time.Millisecond)
		n.wantEnd(t, id, 0, "Completed", "")
	})
}

func TestPauseIsReported(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		uuid := n.rec(t, id).Domain.UUID
		n.libvirt.Pause(uuid, domain.ReasonUser)
		time.Sleep(time.Millisecond)
		if s := n.conditions.StateOf(id); s.Status != domain.StatusPaused || s.Reason != domain.ReasonUser {
			t.Errorf("paused: %+v", s)
		}
		must(t, n.libvirt.Lifecycle.Resume(t.Context(), uuid))
		time.Sleep(time.Millisecond)
		if s := n.conditions.StateOf(id); s.Status != domain.StatusRunning {
			t.Errorf("resumed: %+v", s)
		}
	})
}

// TestEndOnAFullDisk: the kubelet learns of the end, and the undoing is repeated.
func TestEndOnAFullDisk(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		n.script.Fail("Store.PutContainer", vmtest.ErrFull)
		n.script.Fail("Consoles.Finish", vmtest.ErrFull)
		n.libvirt.End(n.rec(t, id).Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Millisecond)
		v, err := n.table.Find(id)
		must(t, err)
		if r := v.Record(); r.State != record.Exited || !r.Unclean {
			t.Errorf("it is %s, unclean %t", r.State, r.Unclean)
		}
		if got := n.events.Take(); got != "stopped" {
			t.Errorf("events %q", got)
		}
		if n.log.count("record the end of VM container") == 0 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		n.script.Fail("Consoles.Finish", nil)
		time.Sleep(3 * time.Second)
		n.script.Fail("Store.PutContainer", nil)
		time.Sleep(time.Minute)
		if r := n.wantEnd(t, id, 0, "Completed", ""); r.Unclean || len(n.running()) > 0 {
			t.Errorf("unclean %t, left %v", r.Unclean, n.running())
		}
	})
}

// TestRemovalWithAFullLog: the removal drops what the log has no room for, and does not wait for room: the
// container's log may be what fills the disk.
func TestRemovalWithAFullLog(t *testing.T) {
	for _, call := range []string{"Consoles.Finish", "Consoles.Follow"} {
		onNode(t, func(t *testing.T, n *node) {
			n.run(t)
			id := n.started(t, "pod")
			n.script.Fail(call, vmtest.ErrFull)
			must(t, n.Remove(t.Context(), id))
			n.wantNothing(t)
			if n.log.count("the rest of its console's output is not in its log") != 1 {
				t.Errorf("log:\n%s", n.log.text.String())
			}
		})
	}
}

// TestRemovalKillsWhatIsLeft: a helper whose files were lost ends with the container, and not before.
func TestRemovalKillsWhatIsLeft(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		busy := fmt.Errorf("remove: %w", cgroup.ErrBusy)
		n.script.Fail("Groups.Remove", busy)
		n.libvirt.End(n.rec(t, id).Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Minute)
		if n.script.Count("Groups.Kill") != 0 {
			t.Error("processes were killed at the end of the guest")
		}
		n.script.FailOnce("Groups.Remove", busy)
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
		if n.script.Count("Groups.Kill") != 1 || n.log.count("killed processes that a VM had left in its cgroup") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
	})
}

func TestOOMCountCantBeRead(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		n.script.Fail("Groups.OOMKills", errors.New("input/output error"))
		n.libvirt.End(n.rec(t, id).Domain.UUID, domain.ReasonFailed)
		time.Sleep(time.Millisecond)
		n.wantEnd(t, id, 137, "Error", "QEMU ended unexpectedly")
		if n.log.count("reading the OOM killer's count failed") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
	})
}

// TestWatchOfAProcessFails: the event still reports the end.
func TestWatchOfAProcessFails(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		n.script.Fail("Libvirt.AwaitEnd", errors.New("too many open files"))
		id := n.started(t, "pod")
		time.Sleep(time.Millisecond)
		if n.log.count("watching a VM's process failed") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		n.libvirt.End(n.rec(t, id).Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Millisecond)
		n.wantEnd(t, id, 0, "Completed", "")
	})
}
