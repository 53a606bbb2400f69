package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/move"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const migration = "0d2c5a5e-0000-4000-8000-000000000001"

// waiting makes a pod whose VM waits for its guest.
func (n *node) waiting(t *testing.T) (id string) {
	t.Helper()
	id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{
		order.Annotation: migration,
		vmspec.AnnotationVMI: `{"domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}}, ` +
			`"networks": [{"name": "default", "pod": {}}]}`,
	}), request(0))
	must(t, err)
	if got := n.rec(t, id).Incoming; got != migration {
		t.Errorf("the disks are made as for a guest that boots: %q", got)
	}
	must(t, n.Start(t.Context(), id))
	return id
}

// arrive has the guest come, as a migration does, and stop before its CPUs run.
func (n *node) arrive(t *testing.T, id string) {
	t.Helper()
	n.arriveWith(t, id, "")
}

// arriveWith is arrive of a guest whose domain has these devices.
func (n *node) arriveWith(t *testing.T, id, devices string) {
	t.Helper()
	r := n.rec(t, id)
	must(t, n.libvirt.Lifecycle.Define(t.Context(), "<domain><name>"+r.Domain.Name+"</name><uuid>"+r.Domain.UUID+"</uuid>"+devices+"</domain>"))
	_, err := n.libvirt.Lifecycle.Start(t.Context(), r.Domain.UUID, nil)
	must(t, err)
	v, err := n.table.Find(id)
	must(t, err)
	must(t, n.Place(t.Context(), v))
}

// TestWaitForGuest: the start of a container that waits makes all but the domain. The guest that comes
// is an ordinary one.
func TestWaitForGuest(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.waiting(t)
		r := n.rec(t, id)
		if r.State != record.Running || r.Incoming != migration || r.Network.NICs[0].Card != "default" || !n.network.Has(id, "bridge") || n.network.Has(id, "connected") {
			t.Errorf("record %+v", r)
		}
		if got := n.libvirt.Left(); len(got) > 0 {
			t.Errorf("domains: %v", got)
		}
		n.libvirt.SetAway(true)
		n.libvirt.SetAway(false) // which has all VMs looked at
		time.Sleep(time.Minute)
		n.arrive(t, id)
		if _, pids, _ := n.groups.Of(id); len(pids) < 1 || !n.network.Has(id, "connected") {
			t.Errorf("QEMU is not placed: %v", pids)
		}
		v, err := n.table.Find(id)
		must(t, err)
		must(t, n.libvirt.Lifecycle.Resume(t.Context(), r.Domain.UUID))
		for range 2 {
			must(t, n.Admit(t.Context(), v))
		}
		time.Sleep(time.Millisecond)
		if n.network.Announced(id) == 0 {
			t.Error("the guest that came is not announced")
		}
		if r := n.rec(t, id); r.Incoming != "" || r.Domain.PID == 0 || n.conditions.StateOf(id).Status != domain.StatusRunning {
			t.Errorf("record %+v", r)
		}
		n.libvirt.End(r.Domain.UUID, domain.ReasonShutdown)
		time.Sleep(time.Millisecond)
		n.wantEnd(t, id, 0, "Completed", "")
		announced := n.network.Announced(id)
		time.Sleep(time.Minute)
		if len(n.network.Silent()) > 0 || n.network.Announced(id) != announced {
			t.Errorf("silent: %v, announced %d times, then %d", n.network.Silent(), announced, n.network.Announced(id))
		}
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// TestStopWaiting: a container that waits ends as refused, also after a restart of the shim.
func TestStopWaiting(t *testing.T) {
	for _, restart := range []bool{false, true} {
		onNode(t, func(t *testing.T, n *node) {
			id := n.waiting(t)
			if restart {
				n.restart(t)
				if got := n.moves.Recovered(); !slices.Equal(got, []string{id}) {
					t.Errorf("recovered: %v", got)
				}
			}
			n.arrive(t, id)
			must(t, n.Stop(t.Context(), id, time.Minute))
			n.wantEnd(t, id, 1, "MigrationRefused", "its container is stopped")
			if len(n.network.Silent()) != 1 || n.network.Announced(id) > 0 {
				t.Errorf("silent: %v, announced %d times", n.network.Silent(), n.network.Announced(id))
			}
			if len(n.running()) > 0 {
				t.Errorf("left: %v", n.running())
			}
			must(t, n.Remove(t.Context(), id))
			n.wantNothing(t)
		})
	}
}

// TestStartOfUnmovable: a VM that cannot move does not wait.
func TestStartOfUnmovable(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.script.Fail("Moves.Check", errors.New("it has a TPM"))
		id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{order.Annotation: migration}), request(0))
		must(t, err)
		wantError(t, n.Start(t.Context(), id), "it has a TPM")
		n.wantEnd(t, id, 128, "StartError", "it has a TPM")
	})
}

// TestGuestLeft: a guest that a migration has taken, or may have, has neither failed nor powered off. The end says where it is.
func TestGuestLeft(t *testing.T) {
	for name, tt := range map[string]struct {
		departure condition.Departure
		reason    domain.Reason
		code      int32
		want      string
	}{
		"left":                     {condition.Departure{Node: "b", Migration: "m-1"}, domain.ReasonDestroyed, 0, "Migrated"},
		"left, as by a power-off":  {condition.Departure{Node: "b", Migration: "m-1"}, domain.ReasonShutdown, 0, "Migrated"},
		"handed over":              {condition.Departure{Node: "b", Migration: "m-1", Unanswered: true}, domain.ReasonDestroyed, 137, "HandedOver"},
		"handed over, as by power": {condition.Departure{Node: "b", Migration: "m-1", Unanswered: true}, domain.ReasonShutdown, 137, "HandedOver"},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.run(t)
				id := n.started(t, "pod")
				n.moves.SetLeft(id, tt.departure)
				n.libvirt.End(n.rec(t, id).Domain.UUID, tt.reason)
				time.Sleep(time.Millisecond)
				n.wantEnd(t, id, tt.code, tt.want, tt.departure.Message())
				if len(n.network.Silent()) != 1 {
					t.Error("the pod gets the addresses of the guest that has left, and is not silent")
				}
			})
		})
	}
}

// TestAnnounce: a guest is announced for a while, as long as it is here, and again for a later reason.
func TestAnnounce(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		v, err := n.table.Find(id)
		must(t, err)
		n.Announce(v)
		time.Sleep(time.Second)
		if got := n.network.Announced(id); got < 4 {
			t.Errorf("announced %d times within a second", got)
		}
		n.moves.SetElsewhere(id, true)
		before := n.network.Announced(id)
		time.Sleep(time.Minute)
		if got := n.network.Announced(id); got != before {
			t.Errorf("announced %d times while another node may have the guest", got-before)
		}
		n.moves.SetElsewhere(id, false)
		n.Announce(v)
		n.Announce(v)
		time.Sleep(time.Minute)
		if got := n.network.Announced(id) - before; got < 9 || got > 10 {
			t.Errorf("announced %d times after two reasons at once", got)
		}
	})
}

// TestNotResumedElsewhere: the retry after a disk error leaves a guest alone that another node may run.
func TestNotResumedElsewhere(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		uuid := n.rec(t, id).Domain.UUID
		n.moves.SetElsewhere(id, true)
		n.libvirt.Pause(uuid, domain.ReasonIOError)
		time.Sleep(time.Minute)
		if got := n.libvirt.Status(uuid); got != domain.StatusPaused {
			t.Errorf("the guest is %s", got)
		}
		n.moves.SetElsewhere(id, false)
		time.Sleep(time.Minute)
		if got := n.libvirt.Status(uuid); got != domain.StatusRunning {
			t.Errorf("the guest is %s", got)
		}
	})
}

// TestReservedPort: the port of migrations stays the pod's that waits.
func TestReservedPort(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		r := n.rec(t, n.waiting(t))
		if r.Network.NICs[0].Reserved != move.Port(r.Spec) {
			t.Errorf("reserved: %d", r.Network.NICs[0].Reserved)
		}
	})
}

// TestArriveOnOwnProcessors: the threads of a guest that came are placed on the processors that
// the container has by then.
func TestArriveOnOwnProcessors(t *testing.T) {
	for _, failed := range []bool{false, true} {
		onNode(t, func(t *testing.T, n *node) {
			n.run(t)
			c := request(0)
			c.Linux.Resources.CpusetCpus = "0-1"
			id, err := n.Create(t.Context(), n.addPod(t, "pod", map[string]string{
				order.Annotation: migration, vmspec.AnnotationVMI: dedicatedVMI,
			}), c)
			must(t, err)
			must(t, n.Start(t.Context(), id))
			must(t, n.Update(t.Context(), id, &runtimeapi.LinuxContainerResources{CpusetCpus: "1-2"}))
			n.arrive(t, id)
			r := n.rec(t, id)
			if got := n.libvirt.Pins(r.Domain.UUID).VCPUs; len(got) > 0 {
				t.Errorf("libvirt is asked to place %v while the guest comes", got)
			}
			if failed {
				n.script.Fail("Libvirt.Pin", domain.ErrUnavailable)
			}
			v, err := n.table.Find(id)
			must(t, err)
			must(t, n.libvirt.Lifecycle.Resume(t.Context(), r.Domain.UUID))
			must(t, n.Admit(t.Context(), v))
			got, want := fmt.Sprint(n.libvirt.Pins(r.Domain.UUID).VCPUs), "[{1 1 0} {2 2 0}]"
			if failed {
				want = "[]"
			}
			if r := n.rec(t, id); got != want || r.Incoming != "" {
				t.Errorf("pins %s, want %s; record %+v", got, want, r.Domain)
			}
			if failed && n.log.count("the guest's threads may be") != 1 {
				t.Error("nothing says that the threads are not placed")
			}
		})
	}
}
