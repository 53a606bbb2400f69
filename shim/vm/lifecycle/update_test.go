package lifecycle_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
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

// TestUpdateOfASlowGuest: a guest that goes on to release memory has the time for it, unless another call waits.
func TestUpdateOfASlowGuest(t *testing.T) {
	const perPoll = 128 << 20 / 600 // 50 ms each
	for _, tt := range []struct {
		name     string
		releases int64
		waits    bool
		after    time.Duration
		want     string
	}{
		{"slow", perPoll, false, 30 * time.Second, ""},
		{"slow, while it is to stop", perPoll, true, 11 * time.Second, "and does not release more"},
		{"too slow", perPoll / 4, false, 90 * time.Second, " after 1m30s: "},
	} {
		onNode(t, func(t *testing.T, n *node) {
			id := n.started(t, "pod")
			n.libvirt.SetGuest(n.rec(t, id).Domain.UUID, vmtest.Guest{Releases: tt.releases, Obeys: 1})
			if tt.waits {
				go func() {
					time.Sleep(time.Second)
					_ = n.Stop(t.Context(), id, time.Second)
				}()
			}
			begun := time.Now()
			err := n.Update(t.Context(), id, memory(128))
			if took := time.Since(begun); (took - tt.after).Abs() > time.Second {
				t.Errorf("%s: after %s", tt.name, took)
			}
			if tt.want == "" {
				must(t, err)
				n.wantMemory(t, id, 128, 128)
			} else {
				wantError(t, err, tt.want)
			}
		})
	}
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

// growing starts a VM of 1 vCPU and 256 MiB that can get 3 and 1 GiB.
func growing(t *testing.T, n *node) (id string) {
	t.Helper()
	pod := n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: `{"domain": {"cpu": {"maxSockets": 3}, "memory": {"maxGuest": "1Gi"},
		"devices": {"disks": [{"name": "disk", "disk": {}}]}}, "volumes": [{"name": "disk", "containerDisk": {"image": "example.com/vm:1"}}]}`})
	config := request(0)
	config.Linux.Resources.CpuPeriod, config.Linux.Resources.CpuQuota = 100000, 100000
	id, err := n.Create(t.Context(), pod, config)
	must(t, err)
	must(t, n.Start(t.Context(), id))
	return id
}

func (n *node) wantSize(t *testing.T, id string, vcpus uint32, mebibytes int64) {
	t.Helper()
	size, err := n.libvirt.Sizes.Size(t.Context(), n.rec(t, id).Domain.UUID)
	must(t, err)
	if want := (domain.Size{VCPUs: vcpus, RAM: mebibytes << 20}); size != want {
		t.Errorf("the domain has %+v, want %+v", size, want)
	}
}

// TestUpdateGrows: higher limits give the guest vCPUs and RAM, lower ones take RAM by the balloon.
func TestUpdateGrows(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := growing(t, n)
		n.wantSize(t, id, 1, 256)
		more := memory(512)
		more.CpuQuota = 200000
		for range 2 {
			must(t, n.Update(t.Context(), id, more))
			n.wantMemory(t, id, 512, 512)
			n.wantSize(t, id, 2, 512)
		}
		must(t, n.Update(t.Context(), id, memory(300)))
		n.wantMemory(t, id, 300, 256)
		must(t, n.Update(t.Context(), id, &runtimeapi.LinuxContainerResources{CpuQuota: 50000}))
		n.wantSize(t, id, 2, 512)
		must(t, n.Update(t.Context(), id, memory(640)))
		n.wantMemory(t, id, 640, 640)
		n.wantSize(t, id, 2, 640)
		if err := n.Update(t.Context(), id, memory(1025)); !errors.Is(err, vmerrors.ErrRange) {
			t.Errorf("beyond the maximum: %v", err)
		}
		must(t, n.Update(t.Context(), id, &runtimeapi.LinuxContainerResources{CpuQuota: 9900000}))
		n.wantSize(t, id, 3, 640)
	})
}

// TestUpdateThatGrowsFails: the guest's memory and the group's limit are as before.
func TestUpdateThatGrowsFails(t *testing.T) {
	for _, call := range []string{"Libvirt.AddRAM", "Libvirt.AddVCPUs", "Libvirt.Size"} {
		onNode(t, func(t *testing.T, n *node) {
			id := growing(t, n)
			n.script.FailOnce(call, errors.New("no slot"))
			more := memory(512)
			more.CpuQuota = 200000
			wantError(t, n.Update(t.Context(), id, more), "no slot")
			n.wantMemory(t, id, 256, 256)
			must(t, n.Update(t.Context(), id, more))
			n.wantMemory(t, id, 512, 512)
			n.wantSize(t, id, 2, 512)
		})
	}
}

// TestGrowthIsAppliedAgain: a shim that ended while it gave a guest more.
func TestGrowthIsAppliedAgain(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := growing(t, n)
		r := n.rec(t, id)
		r.Resources.Value = memory(512)
		r.Resources.Value.CpuPeriod, r.Resources.Value.CpuQuota = 100000, 300000
		must(t, n.store.PutContainer(r))
		n.libvirt.SetAway(true)
		n.restart(t)
		n.run(t)
		n.libvirt.SetAway(false)
		time.Sleep(time.Second)
		n.wantMemory(t, id, 512, 512)
		n.wantSize(t, id, 3, 512)
	})
}
