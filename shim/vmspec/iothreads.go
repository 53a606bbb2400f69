package vmspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// maxIOThreads bounds the threads for the I/O of disks.
const maxIOThreads = 64

// ioThreads gives the disks on bus virtio threads, as KubeVirt does: each disk that asks
// for one has a separate thread, and the others share the rest in turn. Other disks
// are left to QEMU's main thread, or to the first thread if they are on bus scsi.
func (s *Spec) ioThreads(domain *field.Path, d *kubevirt.DomainSpec) field.ErrorList {
	policy, count := kubevirt.IOThreadsPolicy(""), uint32(0)
	if d.IOThreadsPolicy != nil {
		policy = *d.IOThreadsPolicy
	}
	if d.IOThreads != nil && d.IOThreads.SupplementalPoolThreadCount != nil {
		count = *d.IOThreads.SupplementalPoolThreadCount
	}
	pool := policy == kubevirt.IOThreadsPolicySupplementalPool
	s.IOThreadPool = pool
	at := domain.Child("ioThreads", "supplementalPoolThreadCount")
	switch {
	case pool && count == 0:
		return field.ErrorList{field.Required(at, "the number of threads")}
	case !pool && count > 0:
		return field.ErrorList{refused(at, "goes with ioThreadsPolicy supplementalPool")}
	}
	var dedicated map[string]bool
	var problems field.ErrorList
	for i, given := range d.Devices.Disks {
		if !isOr(given.DedicatedIOThread, false) {
			continue
		}
		at := domain.Child("devices", "disks").Index(i).Child("dedicatedIOThread")
		switch {
		case i < len(s.Disks) && s.Disks[i].Bus != BusVirtio: // the disks begin with those given
			problems = append(problems, refused(at, "goes with bus virtio"))
		case pool:
			problems = append(problems, refused(at, "goes with ioThreadsPolicy shared or auto"))
		}
		if dedicated == nil {
			dedicated = map[string]bool{}
		}
		dedicated[given.Name] = true
	}
	if len(problems) == 0 && (policy != "" || dedicated != nil) {
		problems = s.giveThreads(domain, dedicated, s.sharedThreads(d, policy, count, len(dedicated)))
	}
	return problems
}

// sharedThreads returns the number of threads that disks share.
func (s *Spec) sharedThreads(d *kubevirt.DomainSpec, policy kubevirt.IOThreadsPolicy, pool uint32, dedicated int) uint32 {
	limit := 1
	switch policy {
	case kubevirt.IOThreadsPolicySupplementalPool:
		return pool
	case kubevirt.IOThreadsPolicyAuto:
		cpus, ok := d.Resources.Requests[corev1.ResourceCPU]
		if !ok {
			cpus = d.Resources.Limits[corev1.ResourceCPU]
		}
		limit = 2 * int(max(min(cpus.Value(), MaxVCPUs), 1))
	}
	disks := 0
	for _, disk := range s.Disks {
		if disk.Bus == BusVirtio {
			disks++
		}
	}
	// At least one is shared, even if no disk uses it.
	return uint32(max(min(disks, limit)-dedicated, 1))
}

func (s *Spec) giveThreads(domain *field.Path, dedicated map[string]bool, shared uint32) field.ErrorList {
	s.IOThreads = shared
	next := uint32(0)
	for i := range s.Disks {
		disk := &s.Disks[i]
		switch {
		case disk.Bus != BusVirtio:
		case dedicated[disk.Name]:
			s.IOThreads++
			disk.IOThread = s.IOThreads
		default:
			disk.IOThread = next%shared + 1
			next++
		}
	}
	if s.IOThreads > maxIOThreads {
		return field.ErrorList{refused(domain, "its disks have %d I/O threads; a VM has at most %d", s.IOThreads, maxIOThreads)}
	}
	return nil
}

// queueDisks gives each disk on bus virtio a queue for each vCPU.
func (s *Spec) queueDisks() {
	for i := range s.Disks {
		if s.Disks[i].Bus == BusVirtio {
			s.Disks[i].Queues = s.CPU.VCPUs()
		}
	}
}
