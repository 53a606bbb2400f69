// Package resources translates CRI's resources of a VM container: into limits of
// its cgroup, and into the memory that its guest has.
//
// It also reads and sets the cgroup of one VM. When resources change is package
// lifecycle's business.
package resources

import (
	"maps"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Of returns a container's resources, with the changes since its creation.
func Of(r record.Container) *runtimeapi.LinuxContainerResources {
	if r.Resources.Value != nil {
		return r.Resources.Value
	}
	return r.Config.Value.GetLinux().GetResources()
}

// Merge applies a change to resources as containerd does: a zero field leaves
// the old value. The OOM score counts only at the start.
func Merge(old, change *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{}
	if old != nil {
		r = proto.CloneOf(old)
	}
	for _, f := range []struct {
		to   *int64
		from int64
	}{
		{&r.CpuPeriod, change.GetCpuPeriod()},
		{&r.CpuQuota, change.GetCpuQuota()},
		{&r.CpuShares, change.GetCpuShares()},
		{&r.MemoryLimitInBytes, change.GetMemoryLimitInBytes()},
		{&r.MemorySwapLimitInBytes, change.GetMemorySwapLimitInBytes()},
	} {
		if f.from != 0 {
			*f.to = f.from
		}
	}
	if cpus := change.GetCpusetCpus(); cpus != "" {
		r.CpusetCpus = cpus
	}
	if mems := change.GetCpusetMems(); mems != "" {
		r.CpusetMems = mems
	}
	if pages := change.GetHugepageLimits(); len(pages) > 0 {
		r.HugepageLimits = pages
	}
	if len(change.GetUnified()) > 0 {
		unified := maps.Clone(r.Unified)
		if unified == nil {
			unified = map[string]string{}
		}
		maps.Copy(unified, change.GetUnified())
		r.Unified = unified
	}
	return r
}

// Text writes a number of bytes as Kubernetes does.
func Text(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
