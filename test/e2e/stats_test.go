package e2e

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestStats: each API reports the figures of the VM's cgroup, and the pod's figures include the
// VM's once.
func TestStats(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	vm := p.vm(suite.tiny)
	sidecar := p.sidecar("sleep", "1000000").start()

	created := vm.stats()
	if created.Cpu != nil || created.WritableLayer.GetFsId().GetMountpoint() == "" {
		t.Errorf("before the start: %v", created)
	}
	vm.start().up()
	vm.post("/cgi-bin/disk", "a file on the overlay")
	vm.page("/cgi-bin/burn?600")
	group := filepath.Join(p.config.Linux.CgroupParent, vm.id)
	for _, by := range []struct {
		name string
		ask  func() *runtimeapi.ContainerStats
	}{
		{"ContainerStats", vm.stats},
		{"ListContainerStats", func() *runtimeapi.ContainerStats {
			reply, err := suite.cri.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{})
			assert.NilError(t, err)
			return statsOf(t, reply.Stats, vm.id)
		}},
		{"StreamContainerStats", func() *runtimeapi.ContainerStats {
			stream, err := suite.cri.StreamContainerStats(t.Context(), &runtimeapi.StreamContainerStatsRequest{})
			assert.NilError(t, err)
			return statsOf(t, drained(t, stream, (*runtimeapi.StreamContainerStatsResponse).GetContainerStats), vm.id)
		}},
		{"PodSandboxStats", func() *runtimeapi.ContainerStats {
			return statsOf(t, p.stats().Linux.Containers, vm.id)
		}},
	} {
		overlay := filepath.Join(suite.Dir(), "nodevirt", "containers", vm.id, "disk.qcow2")
		log := filepath.Join(suite.Dir(), "log", "libvirt", "qemu", "default_"+p.config.Metadata.Name+"_"+vm.id[:12]+".log")
		before, least := readUsage(t, group), allocated(t, overlay)+allocated(t, log)
		s := by.ask()
		after, most := readUsage(t, group), allocated(t, overlay)+allocated(t, log)
		between(t, by.name+": CPU time", s.Cpu.UsageCoreNanoSeconds.GetValue(), before.cpu, after.cpu)
		between(t, by.name+": memory", s.Memory.UsageBytes.GetValue(), before.memory, after.memory)
		between(t, by.name+": working set", s.Memory.WorkingSetBytes.GetValue(), before.workingSet, after.workingSet)
		if got := s.WritableLayer.UsedBytes.GetValue(); got < min(least, most) || got > max(least, most) || got == 0 {
			t.Errorf("%s: the overlay and the log took %d, and %d afterwards, it says %d", by.name, least, most, got)
		}
		if s.WritableLayer.FsId.Mountpoint != imageFS(t) || s.Swap.SwapUsageBytes == nil || s.Memory.RssBytes.GetValue() < guestMemory/4 {
			t.Errorf("%s: %v", by.name, s)
		}
	}
	// Without a recent sample there is no rate: a guest may take long to boot.
	wait.Until(t, "a plausible rate of CPU use", func() bool {
		rate := vm.stats().Cpu.UsageNanoCores.GetValue()
		return 0 < rate && rate <= 64e9
	})

	before := readUsage(t, p.config.Linux.CgroupParent)
	s := p.stats()
	after := readUsage(t, p.config.Linux.CgroupParent)
	between(t, "pod's CPU time", s.Linux.Cpu.UsageCoreNanoSeconds.GetValue(), before.cpu, after.cpu)
	between(t, "pod's memory", s.Linux.Memory.UsageBytes.GetValue(), before.memory, after.memory)
	between(t, "pod's working set", s.Linux.Memory.WorkingSetBytes.GetValue(), before.workingSet, after.workingSet)
	if len(s.Linux.Containers) != 2 || statsOf(t, s.Linux.Containers, sidecar.id) == nil {
		t.Errorf("the pod's containers: %v", s.Linux.Containers)
	}
	// The sidecar is one task, QEMU several, and there is dnsmasq.
	if n := s.Linux.Process.ProcessCount.GetValue(); n < 4 {
		t.Errorf("%d tasks in the pod", n)
	}

	vm.stop(0)
	if s := vm.stats(); s.Cpu != nil || s.WritableLayer.UsedBytes.GetValue() == 0 {
		t.Errorf("after the end: %v", s)
	}
}

// TestPodStatsOfTheNetwork: what goes to and from the guest is counted once, at
// the pod's own interface, and all ways to ask for pods agree.
func TestPodStatsOfTheNetwork(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	vm := p.vm(suite.tiny).start()
	vm.up()
	conn := vm.echo()
	before := p.stats().Linux.Network
	const size = 256 << 10
	for range 4 {
		vm.echoes(conn, strings.Repeat("x", size/4))
	}
	after := p.stats().Linux.Network
	if len(after.Interfaces) != 1 || after.Interfaces[0].Name != "eth0" || after.DefaultInterface.GetName() != "eth0" {
		t.Fatalf("interfaces: %v", after)
	}
	for what, n := range map[string]uint64{
		"received": after.DefaultInterface.RxBytes.Value - before.DefaultInterface.RxBytes.Value,
		"sent":     after.DefaultInterface.TxBytes.Value - before.DefaultInterface.TxBytes.Value,
	} {
		// Headers, acknowledgements and what else a pod hears add to it, at an MTU of 1400.
		if n < size || n > size*3/2 {
			t.Errorf("%s %d bytes, where the guest's application has %d", what, n, size)
		}
	}
	filter := &runtimeapi.PodSandboxStatsFilter{Id: p.id}
	list, err := suite.cri.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
	assert.NilError(t, err)
	stream, err := suite.cri.StreamPodSandboxStats(t.Context(), &runtimeapi.StreamPodSandboxStatsRequest{Filter: filter})
	assert.NilError(t, err)
	for _, all := range [][]*runtimeapi.PodSandboxStats{
		list.Stats, drained(t, stream, (*runtimeapi.StreamPodSandboxStatsResponse).GetPodSandboxStats),
	} {
		if len(all) != 1 || len(all[0].Linux.Containers) != 1 || len(all[0].Linux.Network.Interfaces) != 1 {
			t.Errorf("list: %v", all)
		}
	}
}

func (c *container) stats() *runtimeapi.ContainerStats {
	c.t.Helper()
	reply, err := suite.cri.ContainerStats(c.t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: c.id})
	assert.NilError(c.t, err)
	return reply.Stats
}

func (p *pod) stats() *runtimeapi.PodSandboxStats {
	p.t.Helper()
	reply, err := suite.cri.PodSandboxStats(p.t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
	assert.NilError(p.t, err)
	return reply.Stats
}

func statsOf(t *testing.T, all []*runtimeapi.ContainerStats, id string) *runtimeapi.ContainerStats {
	t.Helper()
	i := slices.IndexFunc(all, func(s *runtimeapi.ContainerStats) bool { return s.Attributes.Id == id })
	if i < 0 {
		t.Fatalf("no stats of container %s", id)
	}
	return all[i]
}

// drained reads a list that comes in parts to its end.
func drained[R, V any](t *testing.T, stream interface{ Recv() (R, error) }, of func(R) []V) (all []V) {
	t.Helper()
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		assert.NilError(t, err)
		all = append(all, of(reply)...)
	}
}

func allocated(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	assert.NilError(t, unix.Stat(path, &st))
	return uint64(st.Blocks) * 512
}

func imageFS(t *testing.T) string {
	t.Helper()
	reply, err := suite.images.ImageFsInfo(t.Context(), &runtimeapi.ImageFsInfoRequest{})
	assert.NilError(t, err)
	return reply.ImageFilesystems[0].FsId.Mountpoint
}
