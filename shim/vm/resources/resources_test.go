package resources

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

func TestLimits(t *testing.T) {
	const mi = 1 << 20
	g := Groups{Overhead: 256 * mi}
	for name, c := range map[string]struct {
		container, overhead *runtimeapi.LinuxContainerResources
		want                cgroup.Limits
	}{
		"nothing":            {nil, nil, cgroup.Limits{}},
		"the node's default": {&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100 * mi}, nil, cgroup.Limits{Memory: 356 * mi}},
		"the pod's overhead": {
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100 * mi, MemorySwapLimitInBytes: 200 * mi},
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 50 * mi},
			cgroup.Limits{Memory: 150 * mi, MemorySwap: 250 * mi},
		},
		"no limit of swap": {
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100 * mi, MemorySwapLimitInBytes: -1}, nil,
			cgroup.Limits{Memory: 356 * mi, MemorySwap: -1},
		},
		"more than there is": {
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: math.MaxInt64 - 1}, nil, cgroup.Limits{Memory: math.MaxInt64},
		},
		"cpu": {
			&runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 150000, CpuPeriod: 100000, CpusetCpus: "0-1", CpusetMems: "0"},
			&runtimeapi.LinuxContainerResources{CpuQuota: 25000, CpuPeriod: 100000},
			cgroup.Limits{CPUShares: 512, CPUQuota: 175000, CPUPeriod: 100000, CPUSetCPUs: "0-1", CPUSetMems: "0"},
		},
		"cpu of another period": {
			&runtimeapi.LinuxContainerResources{CpuShares: -1, CpuQuota: 150000, CpuPeriod: 100000},
			&runtimeapi.LinuxContainerResources{CpuQuota: 2500, CpuPeriod: 10000},
			cgroup.Limits{CPUQuota: 150000, CPUPeriod: 100000},
		},
		"huge pages": {
			&runtimeapi.LinuxContainerResources{
				HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 * mi}}, Unified: map[string]string{"a": "b"},
			}, nil,
			cgroup.Limits{HugepageLimits: []cgroup.HugepageLimit{{PageSize: "2MB", Bytes: 4 * mi}}, Unified: map[string]string{"a": "b"}},
		},
	} {
		var r record.Container
		r.Config.Value = &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{Resources: c.container}}
		r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{Overhead: c.overhead}}
		got := g.Limits(r)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestMerge(t *testing.T) {
	old := &runtimeapi.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 1 << 30, OomScoreAdj: 900,
		CpusetCpus: "0-3", Unified: map[string]string{"a": "1", "b": "2"},
	}
	was := Merge(old, nil)
	if diff := cmp.Diff(old, was, protocmp.Transform()); diff != "" {
		t.Errorf("by nothing:\n%s", diff)
	}
	got := Merge(old, &runtimeapi.LinuxContainerResources{
		CpuQuota: -1, MemoryLimitInBytes: 1 << 29, MemorySwapLimitInBytes: 1 << 31, OomScoreAdj: -5,
		CpusetCpus: "1", Unified: map[string]string{"b": "3"},
	})
	if diff := cmp.Diff(&runtimeapi.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: -1, CpuShares: 512, MemoryLimitInBytes: 1 << 29, MemorySwapLimitInBytes: 1 << 31,
		OomScoreAdj: 900, CpusetCpus: "1", Unified: map[string]string{"a": "1", "b": "3"},
	}, got, protocmp.Transform()); diff != "" {
		t.Errorf("merged:\n%s", diff)
	}
	if diff := cmp.Diff(was, old, protocmp.Transform()); diff != "" {
		t.Errorf("the old ones were changed:\n%s", diff)
	}
	if got := Merge(nil, &runtimeapi.LinuxContainerResources{CpuShares: 2}); got.CpuShares != 2 {
		t.Errorf("of none: %v", got)
	}
}

// bounds are those of a guest that gets no more than it boots with.
func bounds(least, ram, most int64, huge bool) Memory {
	return Memory{base: base{memory: ram}, least: least, most: most, max: ram, huge: huge}
}

func TestMemory(t *testing.T) {
	const mi = 1 << 20
	for name, c := range map[string]struct {
		ram, limit int64
		balloon    bool
		want       Memory
	}{
		"plain":         {1024 * mi, 1024 * mi, true, bounds(256*mi, 1024*mi, 1024*mi, false)},
		"small":         {128 * mi, 128 * mi, true, bounds(64*mi, 128*mi, 128*mi, false)},
		"tiny":          {32 * mi, 32 * mi, true, bounds(32*mi, 32*mi, 32*mi, false)},
		"VMI's RAM":     {512 * mi, 1024 * mi, true, bounds(128*mi, 512*mi, 1024*mi, false)},
		"no limit":      {512 * mi, 0, true, bounds(128*mi, 512*mi, math.MaxInt64, false)},
		"no balloon":    {512 * mi, 512 * mi, false, bounds(512*mi, 512*mi, 512*mi, false)},
		"rounded limit": {128 * mi, 128*mi + 5, true, bounds(64*mi, 128*mi, 128*mi+5, false)},
	} {
		var r record.Container
		r.Spec.Memory, r.Spec.Balloon = c.ram, c.balloon
		r.Config.Value = &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: c.limit},
		}}
		b := MemoryOf(r)
		b.limit = 0 // is the limit above
		if b != c.want {
			t.Errorf("%s: %+v, want %+v", name, b, c.want)
		}
		for limit, ok := range map[int64]bool{b.least: true, b.most: true, b.memory: true, b.least - 1: false, -1: false, b.most + 1: false} {
			err := b.Check(limit) // b.most+1 may overflow to a negative one
			if (err == nil) != ok || err != nil && !errors.Is(err, vmerrors.ErrRange) {
				t.Errorf("%s: limit %d: %v", name, limit, err)
			}
		}
	}
	huge := bounds(64*mi, 128*mi, 128*mi, true)
	if err := huge.Check(mi); err != nil || huge.Guest(mi) != 128*mi {
		t.Errorf("with huge pages: %v, %d", err, huge.Guest(mi))
	}
	b := bounds(64*mi, 128*mi, 128*mi, false)
	for limit, want := range map[int64]int64{0: 128 * mi, -1: 128 * mi, 100*mi + 7: 100 * mi, 4096 * mi: 128 * mi} {
		if got := b.Guest(limit); got != want {
			t.Errorf("under %d: %d, want %d", limit, got, want)
		}
	}
	if err := b.Check(256 * mi); !strings.Contains(err.Error(), "memory limit 256Mi: the guest booted with 128Mi of RAM, and while it runs the limit can be 64Mi to 128Mi") {
		t.Error(err)
	}
}
