package lifecycle_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

func TestRecoverCreated(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		n.restart(t)
		if r := n.rec(t, id); r.State != record.Created {
			t.Errorf("it is %s", r.State)
		}
		must(t, n.Start(t.Context(), id))
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// TestRecoverCreating: a container whose creation was cut off goes, if not at
// once then later.
func TestRecoverCreating(t *testing.T) {
	for _, call := range []string{"", "Disks.Remove", "Disks.Release", "Store.RemoveContainer"} {
		onNode(t, func(t *testing.T, n *node) {
			r := n.rec(t, n.created(t, "pod"))
			r.State = record.Creating
			must(t, n.store.PutContainer(r))
			if call == "" {
				n.restart(t)
				n.wantNothing(t)
				return
			}
			n.script.Fail(call, errors.New("it is busy"))
			n.restart(t)
			time.Sleep(time.Hour)
			if tries := n.script.Count(call); tries < 60 || tries > 70 {
				t.Errorf("%d attempts in an hour", tries)
			}
			n.script.Fail(call, nil)
			time.Sleep(time.Minute)
			n.wantNothing(t)
			if n.log.count("a container that was not made is removed") != 1 {
				t.Errorf("log:\n%s", n.log.text.String())
			}
		})
	}
}

// TestRecoverUnmadeWithItsPod: the pod goes before the retry.
func TestRecoverUnmadeWithItsPod(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		r := n.rec(t, n.created(t, "pod"))
		r.State = record.Creating
		must(t, n.store.PutContainer(r))
		n.script.FailOnce("Disks.Remove", errors.New("it is busy"))
		n.restart(t)
		must(t, n.RemoveIn(t.Context(), r.SandboxID))
		time.Sleep(time.Minute)
		n.wantNothing(t)
	})
}

// TestRecoverStarting: a start that was cut off has failed; it is undone when
// libvirtd answers.
func TestRecoverStarting(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		r := n.rec(t, id)
		r.State, r.Domain.PID = record.Starting, 0
		must(t, n.store.PutContainer(r))
		n.libvirt.SetAway(true)
		n.restart(t)
		if r := n.wantEnd(t, id, 128, "StartError", "the shim ended while the VM was being started"); !r.Unclean {
			t.Error("no record of its domain: it would run on")
		}
		n.run(t)
		n.libvirt.SetAway(false)
		time.Sleep(time.Millisecond)
		if r := n.rec(t, id); r.Unclean || len(n.running()) > 0 {
			t.Errorf("unclean %t, left %v", r.Unclean, n.running())
		}
	})
}

func TestRecoverRunning(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, other := n.started(t, "pod"), n.started(t, "other")
		n.libvirt.SetAway(true)
		n.end() // its end is not seen
		n.libvirt.End(n.rec(t, other).Domain.UUID, domain.ReasonShutdown)
		n.script.Reset()
		n.restart(t)
		n.run(t)
		if n.script.Count("Disks.reach") != 2 {
			t.Errorf("%d VMs may reach their portals; want 2", n.script.Count("Disks.reach"))
		}
		if !n.consoles.Follows(id) {
			t.Error("its console is not followed")
		}
		for _, one := range []string{id, other} {
			if r := n.rec(t, one); r.State != record.Running {
				t.Errorf("before libvirtd is back it is %s", r.State)
			}
		}
		n.libvirt.SetAway(false)
		time.Sleep(time.Millisecond)
		n.wantEnd(t, other, 0, "Completed", "")
		if s := n.conditions.StateOf(id); s.Status != domain.StatusRunning {
			t.Errorf("the pod's condition says %+v", s)
		}
		// What watches a VM does so after the restart too.
		n.network.Kill(id)
		time.Sleep(2 * time.Second)
		if n.network.Server(id) == 0 {
			t.Error("its dnsmasq was not started again")
		}
		n.libvirt.End(n.rec(t, id).Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Millisecond)
		n.wantEnd(t, id, 0, "Completed", "")
	})
}

// TestRecoverExited: what a shim that ended had not undone.
func TestRecoverExited(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		n.script.Fail("Network.Undo", errors.New("it is busy"))
		must(t, n.Stop(t.Context(), id, 0))
		n.restart(t)
		n.run(t)
		n.libvirt.SetAway(true)
		n.libvirt.SetAway(false)
		time.Sleep(10 * time.Second)
		if r := n.wantEnd(t, id, 137, "Error", "powered off"); !r.Unclean {
			t.Error("it counts as clean")
		}
		n.script.Fail("Network.Undo", nil)
		time.Sleep(time.Minute)
		if r := n.rec(t, id); r.Unclean || len(n.running()) > 0 {
			t.Errorf("unclean %t, left %v", r.Unclean, n.running())
		}
	})
}

// TestRecoverRefused: a record that cannot be used, here of a newer version, stops
// nothing but its own VM, and nothing of that VM is changed or removed.
func TestRecoverRefused(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, other := n.started(t, "pod"), n.created(t, "other")
		r := n.rec(t, id)
		must(t, os.WriteFile(n.layout.ConsoleSocket(id), nil, 0o600))
		n.store.Refuse("container", id, record.ErrNewer)
		n.restart(t)
		n.run(t)
		v, err := n.table.Find(id)
		must(t, err)
		if now := v.Record(); !n.Has(other) || now.State != record.Unknown || now.Reason != "RecordRefused" ||
			!strings.HasPrefix(now.Message, record.ErrNewer.Error()+", and its QEMU, process ") || now.Domain != r.Domain {
			t.Errorf("it is %+v", now)
		}
		if n.log.count("a record cannot be used, and its VM is left alone") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		for call, err := range map[string]error{
			"start": n.Start(t.Context(), id), "stop": n.Stop(t.Context(), id, 0), "remove": n.Remove(t.Context(), id),
			"stop pod": n.StopIn(t.Context(), r.SandboxID), "remove pod": n.RemoveIn(t.Context(), r.SandboxID),
			"update": n.Update(t.Context(), id, nil),
		} {
			if !errors.Is(err, vmerrors.ErrRecord) || !errors.Is(err, record.ErrNewer) {
				t.Errorf("%s: %v", call, err)
			}
		}
		n.libvirt.SetAway(true)
		n.libvirt.SetAway(false)
		time.Sleep(time.Hour)
		if n.network.Server(id) == 0 || !strings.Contains(strings.Join(n.images.Left(), " "), id) ||
			n.libvirt.Status(r.Domain.UUID) != domain.StatusRunning {
			t.Error("parts of a VM whose record cannot be used were removed")
		}
		if _, err := os.Stat(n.layout.ConsoleSocket(id)); err != nil {
			t.Error(err)
		}
		if _, found := n.store.Container(id); found {
			t.Error("the record was written over")
		}
		n.disks.Lost("") // a daemon restarts
		time.Sleep(time.Millisecond)
		if n.script.Count("Disks.Sweep") != 0 {
			t.Error("disks are swept though a record cannot be used")
		}
		must(t, n.Start(t.Context(), other)) // the node serves on
	})
}

// TestRecoverRefusedSandbox: the record of a sandbox is of a newer version.
func TestRecoverRefusedSandbox(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		r := n.rec(t, n.started(t, "pod"))
		n.store.Refuse("sandbox", r.SandboxID, record.ErrNewer)
		n.restart(t)
		_, err := n.Create(t.Context(), r.SandboxID, r.Config.Value)
		for call, err := range map[string]error{"create": err, "remove": n.RemoveIn(t.Context(), r.SandboxID)} {
			if !errors.Is(err, vmerrors.ErrRecord) || !errors.Is(err, record.ErrNewer) {
				t.Errorf("%s: %v", call, err)
			}
		}
		if n.script.Count("Store.PutSandbox") > 1 { // the first
			t.Error("the record was written over")
		}
		n.sandboxes.Gone = []string{r.SandboxID}
		n.restart(t)
		if n.script.Count("Store.RemoveSandbox") > 0 {
			t.Error("the record was removed")
		}
	})
}

// TestRecoverStrays: what a shim that was killed left of containers without a record.
func TestRecoverStrays(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		must(t, os.WriteFile(n.layout.ConsoleSocket(id), nil, 0o600))
		_, err := n.images.Acquire(t.Context(), "export-disk", "2", "")
		must(t, err)
		n.libvirt.End(n.rec(t, id).Domain.UUID, domain.ReasonShutdown)
		must(t, n.store.RemoveContainer(id))
		n.restart(t)
		n.run(t)
		if n.network.Server(id) != 0 {
			t.Error("the dnsmasq of no VM runs")
		}
		if left := strings.Join(n.images.Left(), " "); strings.Contains(left, id) {
			t.Errorf("held: %s", left)
		}
		if _, err := os.Stat(n.layout.ConsoleSocket(id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the console's socket: %v", err)
		}
		n.disks.Lost("")
		time.Sleep(time.Millisecond)
		if left := n.disks.Left(); len(left) != 1 || strings.HasPrefix(left[0], "attached") {
			t.Errorf("disks %v", left)
		}
		n.script.Fail("Libvirt.Domains", errors.New("not now"))
		n.libvirt.SetAway(true)
		n.libvirt.SetAway(false)
		time.Sleep(time.Millisecond)
		if n.log.count("listing the domains failed") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
	})
}

// TestRecoverRestoresSandboxes: a VM whose sandbox's record is lost.
func TestRecoverRestoresSandboxes(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		r := n.rec(t, id)
		must(t, n.store.RemoveSandbox(r.SandboxID))
		n.script.FailOnce("Store.PutSandbox", vmtest.ErrFull)
		n.restart(t)
		if s, ok := n.table.Sandbox(r.SandboxID); !ok || s.Handler != "vm" {
			t.Errorf("sandbox %+v", s)
		}
		if n.log.count("recording the sandbox of a VM again failed") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		must(t, n.RemoveIn(t.Context(), r.SandboxID))
		n.wantNothing(t)
	})
}

// TestRecoverRemovesVMsOfSandboxesThatAreGone: without waiting for libvirtd, which a
// new shim is not connected to yet.
func TestRecoverRemovesVMsOfSandboxesThatAreGone(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		r := n.rec(t, n.created(t, "pod"))
		n.end()
		n.join()
		n.sandboxes.Gone = []string{r.SandboxID}
		must(t, n.Recover(t.Context()))
		n.wantNothing(t)
	})
}

// TestRecoverFails: what a shim can't work without.
func TestRecoverFails(t *testing.T) {
	for _, call := range []string{
		"Images.Sweep", "Store.Refused", "Store.Sandboxes", "Store.Containers", "Sandboxes.Reconcile",
		"Witness.Processes",
	} {
		onNode(t, func(t *testing.T, n *node) {
			n.script.Fail(call, errors.New("input/output error"))
			wantError(t, n.Recover(t.Context()), "input/output error")
		})
	}
	for call, words := range map[string]string{ // what it can
		"Store.RemoveUnrecorded": "removing folders without a record failed",
		"Network.Sweep":          "removing what VMs that are gone had left failed", "Images.Owners": "releasing disks that no container holds failed",
		"Store.Sweep": "removing the temporary files of records failed", "Store.MoveBroken": "moving a broken record failed",
		"Disks.LimitReach": "VMs' processes may reach the node's network",
		"Disks.Recover":    "finding the disks of a VM again failed", "Consoles.Follow": "finding a VM again failed",
	} {
		onNode(t, func(t *testing.T, n *node) {
			n.started(t, "pod")
			n.script.Fail(call, errors.New("input/output error"))
			n.restart(t)
			if n.log.count(words) != 1 {
				t.Errorf("log:\n%s", n.log.text.String())
			}
		})
	}
}
