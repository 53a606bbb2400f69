package lifecycle_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func TestStart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		n.events.Take()
		must(t, n.Start(t.Context(), id))
		r := n.rec(t, id)
		if r.State != record.Running || !r.Unclean || r.StartedAt.IsZero() || r.Domain.PID == 0 {
			t.Errorf("record %+v", r)
		}
		if n.libvirt.Status(r.Domain.UUID) != domain.StatusRunning {
			t.Errorf("the domain is %q", n.libvirt.Status(r.Domain.UUID))
		}
		if r.Network == nil || r.Network.Netns != "/run/netns/"+r.SandboxID || !n.network.Has(id, "connected") ||
			!slices.Equal(r.Network.Nameservers, []netip.Addr{netip.MustParseAddr("192.0.2.1")}) {
			t.Errorf("network %+v", r.Network)
		}
		limits, pids, ok := n.groups.Of(id)
		slices.Sort(pids)
		if want := []int{n.network.Server(id), r.Domain.PID}; !ok || limits.Memory != (256+128)<<20 || !slices.Equal(pids, want) {
			t.Errorf("group of %v with %+v, want %v", pids, limits, want)
		}
		if !n.consoles.Follows(id) {
			t.Error("its console is not followed")
		}
		if s := n.conditions.StateOf(id); s.Status != domain.StatusRunning {
			t.Errorf("the pod's condition says %+v", s)
		}
		if got := n.events.Take(); got != "started" {
			t.Errorf("events %q", got)
		}
		err := n.Start(t.Context(), id)
		wantError(t, err, `failed to set starting state for container "`+id, "container is in CONTAINER_RUNNING state")
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

func TestStartRefuses(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		wantError(t, n.Start(t.Context(), "unknown"), "not found")
		id := n.created(t, "pod")
		n.script.Fail("Sandboxes.NetworkNamespace", errors.New("sandbox is not running"))
		wantError(t, n.Start(t.Context(), id), "sandbox is not running")
		n.script.Fail("Sandboxes.NetworkNamespace", nil)
		n.script.Fail("Store.PutContainer", vmtest.ErrFull)
		wantError(t, n.Start(t.Context(), id), "no space left")
		n.script.Fail("Store.PutContainer", nil)
		if r := n.rec(t, id); r.State != record.Created {
			t.Errorf("it is %s: a start that did not begin can be repeated", r.State)
		}
		must(t, n.Start(t.Context(), id))
	})
}

const noCardVMI = `{"domain": {"devices": {"autoattachPodInterface": false, "disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}]}`

func TestStartWithoutCards(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: noCardVMI}), request(0))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		if r := n.rec(t, id); r.Network != nil || len(n.network.Left()) > 0 {
			t.Errorf("network %+v, left %v", r.Network, n.network.Left())
		}
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

const cardsVMI = `{"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "pods", "macAddress": "02:00:00:aa:bb:01", "masquerade": {}, "ports": [{"port": 80}]}]}},
	"networks": [{"name": "pods", "pod": {"vmNetworkCIDR": "10.9.0.0/24", "vmIPv6NetworkCIDR": "fd09::/120"}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}]}`

func TestStartPlansCards(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: cardsVMI}), request(0))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		nic := n.rec(t, id).Network.NICs[0]
		if nic.GuestMAC.String() != "02:00:00:aa:bb:01" || nic.Binding != "masquerade" {
			t.Errorf("card %+v", nic)
		}
	})
}

// TestStartRefusesMAC: the error names the field.
func TestStartRefusesMAC(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: cardsVMI}), request(0))
		must(t, err)
		n.script.Fail("Network.Plan", fmt.Errorf("plan: %w", &netsetup.MACError{
			Card: 0, Interface: "eth0", Own: netsetup.MAC{2, 0, 0, 0, 0, 1}, Wanted: netsetup.MAC{2, 0, 0, 0, 0, 2},
		}))
		err = n.Start(t.Context(), id)
		for _, words := range []string{
			"nodevirt.io/vmi: spec.domain.devices.interfaces[0].macAddress: ", "eth0, 02:00:00:00:00:01, and not 02:00:00:00:00:02", "vm.pod_network_mac",
		} {
			wantError(t, err, words)
		}
		if !errors.Is(err, netsetup.ErrUnsuited) {
			t.Errorf("its kind: %v", err)
		}
	})
}

// TestOOMScore: the fake QEMU's process does not exist, which the start reports.
func TestOOMScore(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		scored := request(0)
		scored.Linux.Resources.OomScoreAdj = 900
		id, err := n.Create(t.Context(), n.addPod(t, "pod", nil), scored)
		must(t, err)
		wantError(t, n.Start(t.Context(), id), "set QEMU's OOM score")
	})
}

// TestQEMUEndsAtOnce: that a QEMU has ended before it was in its cgroup hides not why it ended.
func TestQEMUEndsAtOnce(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: noCardVMI}), request(0))
		must(t, err)
		n.script.FailOnce("Groups.Add", fmt.Errorf("add process 1: %w", syscall.ESRCH))
		n.script.Fail("Libvirt.Resume", errors.New("the login was refused"))
		wantError(t, n.Start(t.Context(), id), "the login was refused")
	})
}

// TestStartRemedies: an error says what to do.
func TestStartRemedies(t *testing.T) {
	for _, c := range []struct {
		call  string
		err   error
		words string
	}{
		{"Libvirt.Define", domain.ErrUnsupported, "change annotation nodevirt.io/vmi, or have the pod run on another node"},
		{"Disks.Attach", iscsi.ErrUnavailable, "or choose another mode than iscsi"},
		{"Libvirt.Start", domain.ErrUnavailable, "see whether it runs on this node, and start a new container"},
	} {
		onNode(t, func(t *testing.T, n *node) {
			id := n.created(t, "pod")
			n.script.Fail(c.call, c.err)
			wantError(t, n.Start(t.Context(), id), `start VM container "vm" of pod default/pod: `, c.words)
			n.wantEnd(t, id, 128, "StartError", c.words)
		})
	}
}

// TestStartWithLibvirtdAway: the start waits a moment, and fails only if libvirtd stays away.
func TestStartWithLibvirtdAway(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.created(t, "pod")
		n.libvirt.SetAway(true)
		go func() {
			time.Sleep(2 * time.Second)
			n.libvirt.SetAway(false)
		}()
		must(t, n.Start(t.Context(), id))
		must(t, n.Remove(t.Context(), id))

		id = n.created(t, "other")
		n.libvirt.SetAway(true)
		begun := time.Now()
		err := n.Start(t.Context(), id)
		wantError(t, err, "libvirtd is not available: see whether it runs on this node")
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("it waited %s for libvirtd", took)
		}
		if r := n.wantEnd(t, id, 128, "StartError", "libvirtd is not available"); !r.Unclean {
			t.Error("no record of its domain: it would run on")
		}
		if n.log.count("cleaning up after a failed start waits for libvirtd") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		n.libvirt.SetAway(false)
		time.Sleep(time.Millisecond) // not a second: the new connection has it cleaned at once
		if r := n.rec(t, id); r.Unclean || len(n.running()) > 0 {
			t.Errorf("unclean %t, left %v", r.Unclean, n.running())
		}
	})
}

// TestLateDomain: libvirtd hangs at a start, and does it when the shim has given up.
func TestLateDomain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.created(t, "pod")
		uuid := n.rec(t, id).Domain.UUID
		n.script.Hang("Libvirt.Start")
		begun := time.Now()
		err := n.Start(t.Context(), id)
		if took := time.Since(begun); !errors.Is(err, domain.ErrUnavailable) || took != 100*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		wantError(t, err, "it took more than 1m40s")
		if left := n.running(); len(left) > 0 {
			t.Errorf("left %v", left)
		}
		n.script.Fail("Libvirt.Start", nil)
		must(t, n.libvirt.Lifecycle.Define(t.Context(), "<domain><name>late</name><uuid>"+uuid+"</uuid></domain>"))
		_, _ = n.libvirt.Lifecycle.Start(t.Context(), uuid, nil)
		time.Sleep(time.Second)
		if left := n.libvirt.Left(); len(left) > 0 {
			t.Errorf("the late domain stays: %v", left)
		}
		// A new connection may have missed its events.
		n.libvirt.SetAway(true)
		n.libvirt.SetAway(false)
		time.Sleep(time.Second)
		if n.script.Count("Libvirt.Undefine") < 3 {
			t.Error("after a new connection it is not looked for")
		}
	})
}

// TestLostRunFolders: a shim whose run folder was emptied makes its folders again.
func TestLostRunFolders(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		lost := func() {
			for _, dir := range []string{n.layout.Consoles, n.layout.Agents, n.layout.Displays, n.layout.Migrations} {
				must(t, os.RemoveAll(dir))
			}
		}
		lost()
		annotations, c := withHelpers()
		id, err := n.Create(t.Context(), n.addPod(t, "pod", annotations), c)
		must(t, err)
		lost()
		must(t, n.Start(t.Context(), id))
		if _, err := os.Stat(n.layout.Agents); err != nil {
			t.Error(err)
		}
	})
}

// TestLateDefinition: another phase fails while libvirtd defines the domain, and cancels the call. libvirtd
// defines the domain all the same.
func TestLateDefinition(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.created(t, "pod")
		uuid := n.rec(t, id).Domain.UUID
		n.script.Hang("Libvirt.Define")
		release := n.script.Hold("Network.Apply")
		n.script.Fail("Network.Serve", errors.New("dnsmasq is missing"))
		failed := make(chan error)
		go func() { failed <- n.Start(t.Context(), id) }()
		synctest.Wait()
		release()
		wantError(t, <-failed, "dnsmasq is missing")
		n.script.Fail("Libvirt.Define", nil)
		n.script.FailOnce("Libvirt.Undefine", errors.New("it is busy"))
		must(t, n.libvirt.Lifecycle.Define(t.Context(), "<domain><name>late</name><uuid>"+uuid+"</uuid></domain>"))
		time.Sleep(time.Minute)
		if left := n.libvirt.Left(); len(left) > 0 {
			t.Errorf("the late domain stays: %v", left)
		}
	})
}

// TestStartForgetsTheAgent: what an earlier guest's agent reported is forgotten.
func TestStartForgetsTheAgent(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		n.agents.Set(id, agent.State{Presence: agent.Present})
		must(t, n.Start(t.Context(), id))
		v, err := n.table.Find(id)
		must(t, err)
		if s := n.agents.State(v); s.Presence != agent.Absent {
			t.Errorf("the agent is %s", s.Presence)
		}
	})
}
