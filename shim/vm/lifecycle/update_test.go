package lifecycle_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

func memory(mebibytes int64) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: mebibytes << 20}
}

// wantMemory checks what a running VM has, in MiB.
func (n *node) wantMemory(t *testing.T, id string, limit, guest int64) {
	t.Helper()
	r := n.rec(t, id)
	l, _, _ := n.groups.Of(id)
	has, err := n.libvirt.Balloon.Memory(t.Context(), r.Domain.UUID)
	must(t, err)
	if recorded := resources.Of(r).GetMemoryLimitInBytes(); recorded != limit<<20 || l.Memory != (limit+128)<<20 || has != guest<<20 {
		t.Errorf("recorded %d, group %d, guest %d; want %d, guest %d MiB", recorded>>20, l.Memory>>20, has>>20, limit, guest)
	}
}

// TestUpdateCreated: the VM is translated again, and its disks stay as they were made.
func TestUpdateCreated(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.disks.CD = true
		id := n.created(t, "pod")
		was := n.rec(t, id)
		must(t, n.Update(t.Context(), id, memory(512)))
		r := n.rec(t, id)
		if r.Spec.Memory != 512<<20 || len(r.Spec.Disks) != 1 || r.Spec.Disks[0] != was.Spec.Disks[0] || !r.Spec.Disks[0].CDROM {
			t.Errorf("spec %+v", r.Spec)
		}
		if was.Config.Value.GetLinux().GetResources().GetMemoryLimitInBytes() != 256<<20 {
			t.Error("the earlier record was changed")
		}
		if err := n.Update(t.Context(), id, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 19}); !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("512 KiB of RAM: %v", err)
		}
		wantError(t, n.Update(t.Context(), "unknown", memory(1)), "not found")
	})
}

func TestUpdateRunning(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		must(t, n.Update(t.Context(), id, memory(128)))
		n.wantMemory(t, id, 128, 128)
		must(t, n.Update(t.Context(), id, memory(256)))
		n.wantMemory(t, id, 256, 256)
		for _, mebibytes := range []int64{32, 512} {
			if err := n.Update(t.Context(), id, memory(mebibytes)); !errors.Is(err, vmerrors.ErrRange) {
				t.Errorf("%d MiB: %v", mebibytes, err)
			}
		}
		n.wantMemory(t, id, 256, 256)
		must(t, n.Update(t.Context(), id, &runtimeapi.LinuxContainerResources{CpuQuota: 50000, CpuPeriod: 100000}))
		if l, _, _ := n.groups.Of(id); l.CPUQuota != 50000 {
			t.Errorf("limits %+v", l)
		}
		must(t, n.Stop(t.Context(), id, 0))
		must(t, n.Update(t.Context(), id, memory(64)))
		if got := resources.Of(n.rec(t, id)).GetMemoryLimitInBytes(); got != 64<<20 {
			t.Errorf("of one that ended %d is recorded", got)
		}
	})
}

// TestUpdateFails: the old resources are recorded and applied again.
func TestUpdateFails(t *testing.T) {
	for _, c := range []struct {
		call string
		err  error
		kind error
	}{
		{"Groups.Set", syscall.EINVAL, vmerrors.ErrInvalid},
		{"Groups.Set", syscall.ERANGE, vmerrors.ErrInvalid},
		{"Groups.Set", syscall.EBUSY, vmerrors.ErrState},
		{"Libvirt.SetMemory", errors.New("no balloon"), nil},
		{"Libvirt.Memory", errors.New("no answer"), nil},
		{"Store.PutContainer", vmtest.ErrFull, nil},
	} {
		onNode(t, func(t *testing.T, n *node) {
			id := n.started(t, "pod")
			n.script.FailOnce(c.call, c.err)
			err := n.Update(t.Context(), id, memory(128))
			if !errors.Is(err, c.err) || c.kind != nil && !errors.Is(err, c.kind) {
				t.Errorf("%s fails with %v: %v", c.call, c.err, err)
			}
			wantError(t, err, "update resources of VM container")
			n.wantMemory(t, id, 256, 256)
			must(t, n.Update(t.Context(), id, memory(128)))
			n.wantMemory(t, id, 128, 128)
		})
	}
}

// TestUpdateOfAGuestThatKeepsItsMemory: the group is never below what the guest has.
func TestUpdateOfAGuestThatKeepsItsMemory(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		n.libvirt.SetGuest(n.rec(t, id).Domain.UUID, vmtest.Guest{NoBalloon: true})
		begun := time.Now()
		err := n.Update(t.Context(), id, memory(128))
		if took := time.Since(begun); !errors.Is(err, vmerrors.ErrState) || took != 10*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		wantError(t, err, "the guest still has 256Mi after 10s and does not release more")
		n.wantMemory(t, id, 256, 256)
	})
}

// TestUpdateIsAppliedAgain: a shim that ended while it changed resources.
func TestUpdateIsAppliedAgain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		r := n.rec(t, id)
		r.Resources.Value = memory(128)
		must(t, n.store.PutContainer(r))
		n.libvirt.SetAway(true)
		n.restart(t)
		n.run(t)
		n.script.FailOnce("Groups.Set", errors.New("it is busy"))
		n.libvirt.SetAway(false)
		time.Sleep(time.Second)
		if n.log.count("applying a VM's changed resources again failed") != 1 {
			t.Errorf("log:\n%s", n.log.text.String())
		}
		n.libvirt.SetAway(true)
		n.libvirt.SetAway(false)
		time.Sleep(time.Second)
		n.wantMemory(t, id, 128, 128)
	})
}

func TestUpdateDuringAStart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		v, err := n.table.Find(id)
		must(t, err)
		r := v.Record()
		r.State = record.Creating
		must(t, n.table.Put(v, r))
		if err := n.Update(t.Context(), id, memory(128)); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("error %v", err)
		}
	})
}
