package lifecycle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

// TestDnsmasqIsStartedAgain: and its new process is in the VM's group.
func TestDnsmasqIsStartedAgain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		time.Sleep(time.Millisecond)
		n.script.Fail("Network.Serve", errors.New("too many processes"))
		n.network.Kill(id)
		time.Sleep(10 * time.Second)
		if n.log.count("starting dnsmasq again failed") < 5 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		n.script.Fail("Network.Serve", nil)
		time.Sleep(2 * time.Second)
		_, pids, _ := n.groups.Of(id)
		if pid := n.network.Server(id); pid == 0 || pids[len(pids)-1] != pid {
			t.Errorf("dnsmasq is process %d; the group has %v", pid, pids)
		}
		if n.log.count("dnsmasq had ended and was started again") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		n.script.Fail("Network.Watch", errors.New("too many open files"))
		n.network.Kill(id)
		time.Sleep(10 * time.Second)
		if n.log.count("watching dnsmasq failed") < 5 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		n.script.Fail("Network.Watch", nil)
		must(t, n.Stop(t.Context(), id, 0))
		time.Sleep(time.Minute)
		if n.network.Server(id) != 0 {
			t.Error("the dnsmasq of a VM that ended was started again")
		}
	})
}

// TestDnsmasqForgetsAGuestThatReboots: it may be another DHCP client then.
func TestDnsmasqForgetsAGuestThatReboots(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		time.Sleep(time.Millisecond)
		was := n.network.Server(id)
		n.libvirt.Emit(domain.Event{UUID: n.rec(t, id).Domain.UUID, Kind: domain.EventRebooted})
		time.Sleep(2 * time.Second)
		if pid := n.network.Server(id); pid == 0 || pid == was {
			t.Errorf("dnsmasq is process %d, as before the reboot", pid)
		}
		if n.log.count("dnsmasq had ended and was started again") != 0 {
			t.Error("an end that the shim wanted is logged as a failure")
		}
		n.script.Fail("Network.Forget", errors.New("it does not end"))
		n.libvirt.Emit(domain.Event{UUID: n.rec(t, id).Domain.UUID, Kind: domain.EventRebooted})
		time.Sleep(time.Millisecond)
		if n.log.count("ending the dnsmasq of a guest that reboots failed") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
	})
}

// TestDiskError: a guest that QEMU stopped goes on as soon as its disk works.
func TestDiskError(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		uuid := n.rec(t, id).Domain.UUID
		n.script.Fail("Libvirt.Resume", errors.New("no space left on device"))
		n.libvirt.Pause(uuid, domain.ReasonIOError)
		n.libvirt.Pause(uuid, domain.ReasonIOError)
		tries := n.script.Count("Libvirt.Resume")
		time.Sleep(20 * time.Second)
		if got := n.script.Count("Libvirt.Resume") - tries; got < 9 || got > 12 {
			t.Errorf("%d attempts in 20 s", got)
		}
		if s := n.conditions.StateOf(id); s.Reason != domain.ReasonIOError {
			t.Errorf("the pod's condition says %+v", s)
		}
		want := "I/O error on disk " + n.rec(t, id).Spec.Disks[0].Name + ": no space left on its storage"
		if got := n.conditions.DiskError(id); got != want {
			t.Errorf("the disk that fails: %q, want %q", got, want)
		}
		n.libvirt.SetAway(true)
		time.Sleep(20 * time.Second)
		n.script.Fail("Libvirt.Resume", nil)
		n.libvirt.SetAway(false)
		time.Sleep(5 * time.Second)
		if n.libvirt.Status(uuid) != domain.StatusRunning || n.conditions.StateOf(id).Status != domain.StatusRunning {
			t.Errorf("it is %s, and reported as %+v", n.libvirt.Status(uuid), n.conditions.StateOf(id))
		}
		if n.log.count("goes on\"") != 1 || n.log.count("the guest is stopped, since its disk fails") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		// And again, until it ends.
		n.script.Fail("Libvirt.Resume", errors.New("no space left on device"))
		n.libvirt.Pause(uuid, domain.ReasonIOError)
		time.Sleep(5 * time.Second)
		must(t, n.Stop(t.Context(), id, 0))
		tries = n.script.Count("Libvirt.Resume")
		time.Sleep(time.Minute)
		if n.script.Count("Libvirt.Resume") != tries {
			t.Error("a guest that has ended is resumed")
		}
	})
}

// TestDisksAreRestored: what a daemon that restarted has lost.
func TestDisksAreRestored(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		first, second := n.started(t, "pod"), n.started(t, "other")
		n.created(t, "third")
		n.disks.Lost(first)
		time.Sleep(time.Millisecond)
		if got := n.script.Count("Disks.Restore"); got != 1 {
			t.Errorf("%d VMs' disks were restored, want 1", got)
		}
		n.disks.Lost("")
		time.Sleep(time.Millisecond)
		if got := n.script.Count("Disks.Restore"); got != 3 || n.script.Count("Disks.Sweep") != 1 {
			t.Errorf("%d VMs' disks were restored, want 2 more; %d sweeps", got, n.script.Count("Disks.Sweep"))
		}
		n.script.Fail("Disks.Restore", errors.New("tgtd is away"))
		n.script.Fail("Disks.Sweep", errors.New("tgtd is away"))
		n.disks.Lost("")
		time.Sleep(10 * time.Second)
		if got := n.script.Count("Disks.Restore"); got < 20 {
			t.Errorf("%d attempts", got)
		}
		if n.log.count("restoring the disks of a VM failed, retrying") != 2 || n.log.count("removing what disks that are gone had left failed") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		must(t, n.Stop(t.Context(), first, 0))
		n.script.Fail("Disks.Restore", domain.ErrUnavailable) // the next connection repeats it
		time.Sleep(10 * time.Second)
		tries := n.script.Count("Disks.Restore")
		time.Sleep(time.Minute)
		if n.script.Count("Disks.Restore") != tries {
			t.Error("it is retried while libvirtd is away")
		}
		n.script.Fail("Disks.Restore", nil)
		n.libvirt.SetAway(true)
		n.libvirt.SetAway(false)
		time.Sleep(time.Millisecond)
		if n.script.Count("Disks.Restore") != tries+1 || n.rec(t, second).State != record.Running {
			t.Error("it is not repeated with the next connection")
		}
	})
}

// TestImagesAreCollected: an expanded disk goes soon after its image.
func TestImagesAreCollected(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		if n.script.Count("Images.Collect, there: true") != 1 {
			t.Errorf("calls %v", n.script.Calls())
		}
		n.images.RemoveImage("sha256:expanded")
		time.Sleep(time.Second)
		if n.script.Count("Images.Collect, there: false") != 1 {
			t.Errorf("calls %v", n.script.Calls())
		}
		n.script.Fail("Images.ImageStatus", errors.New("containerd is away"))
		time.Sleep(2 * time.Minute)
		if n.log.count("looking for expanded disks of images that are gone failed, retrying") == 0 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
	})
}

func TestAgentEventsReachTheAgents(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		n.run(t)
		if n.script.Count("Disks.portal") != 1 {
			t.Error("the portals of a running VM's disks are not watched")
		}
		n.libvirt.Emit(domain.Event{UUID: n.rec(t, id).Domain.UUID, Kind: domain.EventAgentConnected})
		time.Sleep(time.Millisecond)
		v, err := n.table.Find(id)
		must(t, err)
		if s := n.agents.State(v); s.Presence != "connected" {
			t.Errorf("the agent is %s", s.Presence)
		}
	})
}
