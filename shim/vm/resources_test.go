package vm

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

func TestMerged(t *testing.T) {
	old := &runtimeapi.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 1 << 30, OomScoreAdj: 900,
		CpusetCpus: "0-3", Unified: map[string]string{"a": "1", "b": "2"},
	}
	was := merged(old, nil)
	if diff := cmp.Diff(old, was, protocmp.Transform()); diff != "" {
		t.Errorf("by nothing:\n%s", diff)
	}
	got := merged(old, &runtimeapi.LinuxContainerResources{
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
	if got := merged(nil, &runtimeapi.LinuxContainerResources{CpuShares: 2}); got.CpuShares != 2 {
		t.Errorf("of none: %v", got)
	}
}

func TestMemoryBounds(t *testing.T) {
	const mi = 1 << 20
	for name, c := range map[string]struct {
		ram, limit int64
		balloon    bool
		want       memoryBounds
	}{
		"plain":         {1024 * mi, 1024 * mi, true, memoryBounds{256 * mi, 1024 * mi, 1024 * mi}},
		"small":         {128 * mi, 128 * mi, true, memoryBounds{64 * mi, 128 * mi, 128 * mi}},
		"tiny":          {32 * mi, 32 * mi, true, memoryBounds{32 * mi, 32 * mi, 32 * mi}},
		"VMI's RAM":     {512 * mi, 1024 * mi, true, memoryBounds{128 * mi, 512 * mi, 1024 * mi}},
		"no limit":      {512 * mi, 0, true, memoryBounds{128 * mi, 512 * mi, math.MaxInt64}},
		"no balloon":    {512 * mi, 512 * mi, false, memoryBounds{512 * mi, 512 * mi, 512 * mi}},
		"rounded limit": {128 * mi, 128*mi + 5, true, memoryBounds{64 * mi, 128 * mi, 128*mi + 5}},
	} {
		var r record.Container
		r.Spec.Memory, r.Spec.Balloon = c.ram, c.balloon
		r.Config.Value = &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: c.limit},
		}}
		b := boundsOf(r)
		if b != c.want {
			t.Errorf("%s: %+v, want %+v", name, b, c.want)
		}
		for limit, ok := range map[int64]bool{b.least: true, b.most: true, b.ram: true, b.least - 1: false, -1: false, b.most + 1: false} {
			err := b.check(limit) // b.most+1 may overflow to a negative one
			if (err == nil) != ok || err != nil && !errors.Is(err, ErrRange) {
				t.Errorf("%s: limit %d: %v", name, limit, err)
			}
		}
	}
	b := memoryBounds{64 * mi, 128 * mi, 128 * mi}
	for limit, want := range map[int64]int64{0: 128 * mi, -1: 128 * mi, 100*mi + 7: 100 * mi, 4096 * mi: 128 * mi} {
		if got := b.guestMemory(limit); got != want {
			t.Errorf("under %d: %d, want %d", limit, got, want)
		}
	}
	if err := b.check(256 * mi); !strings.Contains(err.Error(), "memory limit 256Mi: it booted with 128Mi of RAM, and while it runs its limit can be 64Mi to 128Mi") {
		t.Error(err)
	}
}
