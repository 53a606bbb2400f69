package report_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/report"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

func TestStatus(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.add("b", record.Creating)
	reply, err := n.Status("a", false)
	if err != nil || reply.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || len(reply.GetInfo()) != 0 {
		t.Errorf("status %v, %v", reply, err)
	}
	n.conditions.SetState(v, domain.State{Status: domain.StatusPaused, Reason: domain.ReasonUser})
	n.agents.Set(v.Record().ID, agent.State{Presence: agent.Present})
	change(v, func(r *record.Container) {
		r.Trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
		r.Timeline = []record.Phase{{Name: record.PhaseResume, Begun: time.Unix(1, 0), Took: time.Second}}
	})
	reply, err = n.Status("a", true)
	if err != nil {
		t.Fatal(err)
	}
	var info vminfo.Info
	if err := json.Unmarshal([]byte(reply.GetInfo()[vminfo.Key]), &info); err != nil {
		t.Fatal(err)
	}
	if info.VM.Paused != "PausedByUser" || info.VM.Agent == nil || !strings.Contains(info.VM.DomainXML, "<name>ns_pod-a</name>") ||
		info.VM.DisplaySocket != "" || len(info.VM.Disks) != 1 || info.VM.Disks[0].Mode != "file" {
		t.Errorf("info %+v", info.VM)
	}
	if l := info.VM.Timeline; len(l) != 1 || l[0].Took != time.Second || info.VM.TraceID != "0123456789abcdef0123456789abcdef" {
		t.Errorf("timeline %+v of trace %s", l, info.VM.TraceID)
	}
	change(v, func(r *record.Container) { r.Spec.Memory, r.Spec.Display = 0, true })
	reply, err = n.Status("a", true)
	if err != nil || strings.Contains(reply.GetInfo()[vminfo.Key], "domainXML") || !strings.Contains(reply.GetInfo()[vminfo.Key], `"/displays/aaa`) {
		t.Errorf("a VM that can't be described: %v, %v", reply.GetInfo(), err)
	}
	change(v, func(r *record.Container) { r.State = record.Exited })
	if reply, err := n.Status("a", true); err != nil || strings.Contains(reply.GetInfo()[vminfo.Key], `"paused"`) {
		t.Errorf("a VM that ended: %v, %v", reply.GetInfo(), err)
	}
	if _, err := n.Status("x", false); err == nil {
		t.Error("an unknown container has a status")
	}
	if all := n.Statuses(v.Record().SandboxID); len(all) != 1 {
		t.Errorf("statuses %v", all)
	}
	if u := n.Unfinished("p"); u.Container != "of p" {
		t.Errorf("unfinished %+v", u)
	}
	if report.State("x") != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		t.Error("an unknown state is known")
	}
}

func TestList(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.add("b", record.Exited)
	n.add("c", record.Creating)
	for want, filters := range map[int][]*runtimeapi.ContainerFilter{
		2: {nil, {}},
		1: {{Id: "a"}, {PodSandboxId: v.Record().SandboxID[:4]}, {LabelSelector: map[string]string{"letter": "b"}}},
		0: {{Id: "x"}, {Id: "c"}, {PodSandboxId: "0"}, {Id: "a", PodSandboxId: "0b"}},
	} {
		for _, f := range filters {
			if got := n.List(f); len(got) != want {
				t.Errorf("filter %v: %d containers, want %d", f, len(got), want)
			}
		}
	}
}

func usage() cgroup.Stats {
	return cgroup.Stats{
		CPU: 5e9, Memory: 100, MemoryLimit: 200, WorkingSet: 80, PIDs: 7, MemoryPressure: &cgroup.Pressure{}, IOPressure: &cgroup.Pressure{},
		IOBytes: []cgroup.DeviceIO{{Major: 8, Op: "Read", Value: 1}, {Major: 8, Op: "Write", Value: 2}, {Major: 8, Op: "Sync", Value: 3}},
		IOs:     []cgroup.DeviceIO{{Major: 8, Op: "Read", Value: 1}},
	}
}

func TestStats(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	id := v.Record().ID
	n.groups.SetUse(id, usage(), 0)
	s, err := n.Stats(id)
	if err != nil || s.GetCpu().GetUsageCoreNanoSeconds().GetValue() != 5e9 || s.GetMemory().GetAvailableBytes().GetValue() != 120 || s.GetIo() == nil {
		t.Errorf("stats %v, %v", s, err)
	}
	n.script.Fail("Groups.Stats", fs.ErrNotExist)
	if s, err := n.Stats(id); err != nil || s.GetCpu() != nil || s.GetWritableLayer() == nil {
		t.Errorf("of a group that is gone: %v, %v", s, err)
	}
	n.script.Fail("Groups.Stats", errors.New("input/output error"))
	if _, err := n.Stats(id); err == nil || !strings.Contains(err.Error(), "stats of VM container") {
		t.Errorf("error %v", err)
	}
	n.add("b", record.Exited)
	if all := n.ListStats(nil); len(all) != 1 || all[0].GetAttributes().GetId()[0] != 'b' {
		t.Errorf("a VM that can't be read hides others: %v", all)
	}
	if _, err := n.Stats("x"); err == nil {
		t.Error("an unknown container has stats")
	}
}

func TestPodStats(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	r := v.Record()
	n.groups.SetUse(r.ID, usage(), 0)
	pod := func() *runtimeapi.PodSandboxStats {
		bridge, eth0 := &runtimeapi.NetworkInterfaceUsage{Name: "br0"}, &runtimeapi.NetworkInterfaceUsage{Name: "eth0"}
		return &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: r.SandboxID},
			Linux: &runtimeapi.LinuxPodSandboxStats{
				Process: &runtimeapi.ProcessUsage{ProcessCount: &runtimeapi.UInt64Value{Value: 1}},
				Network: &runtimeapi.NetworkUsage{DefaultInterface: bridge, Interfaces: []*runtimeapi.NetworkInterfaceUsage{bridge, eth0}},
			},
		}
	}
	s := pod()
	n.AddToPodStats(s)
	if len(s.Linux.Containers) != 1 || s.Linux.Process.ProcessCount.Value != 8 || len(s.Linux.Network.Interfaces) != 1 ||
		s.Linux.Network.DefaultInterface.GetName() != "eth0" {
		t.Errorf("stats %v", s)
	}
	n.script.Fail("Groups.Stats", errors.New("input/output error"))
	s = pod()
	n.AddToPodStats(s)
	if len(s.Linux.Containers) != 0 {
		t.Errorf("stats %v", s)
	}
	n.AddToPodStats(&runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{Id: "x"}})
}

func TestPodMetrics(t *testing.T) {
	n := newNode(t)
	r := n.add("a", record.Running).Record()
	n.groups.SetUse(r.ID, usage(), 2)
	m := &runtimeapi.PodSandboxMetrics{PodSandboxId: r.SandboxID}
	n.AddToPodMetrics(m)
	values := map[string]uint64{}
	for _, one := range m.GetContainerMetrics()[0].GetMetrics() {
		values[one.GetName()] += one.GetValue().GetValue()
		if one.GetLabelValues()[0] != "pod-a" || one.GetLabelValues()[2] != "vm" {
			t.Errorf("labels %v", one.GetLabelValues())
		}
	}
	for name, want := range map[string]uint64{
		"container_cpu_usage_seconds_total": 5, "container_memory_working_set_bytes": 80, "container_oom_events_total": 2,
		"container_fs_reads_bytes_total": 1, "container_fs_writes_bytes_total": 2, "container_blkio_device_usage_total": 6, "container_processes": 7,
	} {
		if values[name] != want {
			t.Errorf("%s is %d, want %d", name, values[name], want)
		}
	}
	n.script.Fail("Groups.Stats", errors.New("input/output error"))
	m = &runtimeapi.PodSandboxMetrics{PodSandboxId: r.SandboxID}
	n.AddToPodMetrics(m)
	n.AddToPodMetrics(&runtimeapi.PodSandboxMetrics{PodSandboxId: "x"})
	if len(m.GetContainerMetrics()) != 0 {
		t.Errorf("metrics %v", m)
	}
}

// TestSnapshot: libvirtd hangs at the first question, which takes no part of the
// snapshot.
func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		r := n.add("a", record.Running).Record()
		n.add("b", record.Exited)
		n.groups.SetUse(r.ID, usage(), 0)
		n.agents.Set(r.ID, agent.State{Presence: agent.Absent})
		n.domains[r.Domain.UUID] = domain.Stats{}
		n.libvirtHangs.Store(1)
		s := n.node.Snapshot(t.Context())
		if !s.Libvirt || !s.Containerd || s.States["running"] != 1 || s.States["exited"] != 1 || s.States["created"] != 0 || len(s.VMs) != 1 ||
			s.ImageFSUsed != 4096 || s.ImageFSSize == 0 || s.Expanded != 2 || len(s.Expanding) != 1 {
			t.Errorf("snapshot %+v", s)
		}
		if vm := s.VMs[0]; vm.Domain == nil || vm.Group == nil || vm.Agent == nil || *vm.Agent || len(vm.Cards) != 1 || vm.Cards[0].Name != "default" ||
			vm.Migration == nil || vm.Migration.Remaining != 7 {
			t.Errorf("VM %+v", vm)
		}
	})
}

func TestSnapshotWithLibvirtdAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		v := n.add("a", record.Running)
		change(v, func(r *record.Container) { r.Network.NICs = nil })
		n.libvirtHangs.Store(2)
		n.script.Hang("Images.ImageFsInfo")
		s := n.node.Snapshot(t.Context())
		if s.Libvirt || s.Containerd || len(s.VMs) != 1 || s.VMs[0].Domain != nil || s.VMs[0].Group != nil || s.VMs[0].Agent != nil || s.VMs[0].Cards != nil {
			t.Errorf("snapshot %+v", s)
		}
	})
}
