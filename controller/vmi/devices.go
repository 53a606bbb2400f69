package vmi

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// setMachine reports the VM's machine type, size and disks as it has started. Package
// hotplug reports the disks that the VM has got since.
func setMachine(s *kubevirt.VirtualMachineInstanceStatus, vmi *kubevirt.VirtualMachineInstance, v view) {
	made, _ := vmspec.Preview(field.NewPath("spec"), &vmi.Spec)
	s.Machine = &kubevirt.Machine{Type: machineType(made, s.Machine, v)}
	setSize(s, made, pod.SizeIn(&vmi.Spec, v.pod, v.limits()))
	now := volumes(&vmi.Spec, made.Disks, v.pvcs)
	keepCapacities(now, s.VolumeStatus)
	plugged := slices.DeleteFunc(s.VolumeStatus, func(v kubevirt.VolumeStatus) bool { return v.HotplugVolume == nil })
	s.VolumeStatus = append(now, plugged...)
	if state := stateVolume(v.pod); state != nil {
		s.VolumeStatus = append(s.VolumeStatus, *state)
	}
	plug(s.Interfaces, made.Interfaces, v.pod)
	if made.VSOCK {
		setVSOCK(s, v)
	}
}

// machineType returns the type of the VM's board. Until a node reports it, that of the guest's source counts, then
// what the spec says.
func machineType(made vmspec.Spec, was *kubevirt.Machine, v view) string {
	switch c := v.trueCondition(condition.MachineType); {
	case c != nil:
		return c.Message
	case was != nil:
		return was.Type
	default:
		return made.Machine
	}
}

// setVSOCK reports the CID that the node has given the VM.
func setVSOCK(s *kubevirt.VirtualMachineInstanceStatus, v view) {
	c := v.trueCondition(condition.VSOCK)
	if c == nil {
		return
	}
	if cid, err := strconv.ParseUint(c.Message, 10, 32); err == nil {
		s.VSOCKCID = new(uint32(cid))
	}
}

// plug adds to the cards what only the spec knows. No card of a running VM is unplugged.
func plug(cards []kubevirt.VirtualMachineInstanceNetworkInterface, made []vmspec.Interface, p *corev1.Pod) {
	for i := range cards {
		at := slices.IndexFunc(made, func(m vmspec.Interface) bool { return m.Name == cards[i].Name })
		if at < 0 {
			continue
		}
		cards[i].LinkState = string(pod.LinkState(p, cards[i].Name, made[at].Unplugged))
		cards[i].QueueCount = int32(max(made[at].Queues, 1))
	}
}

// setSize reports the vCPUs and the memory of a VM that is made so, and has got size since. No guest
// loses vCPUs while it runs.
func setSize(s *kubevirt.VirtualMachineInstanceStatus, made vmspec.Spec, size pod.Size) {
	now := &kubevirt.CPUTopology{Cores: made.CPU.Cores, Sockets: made.CPU.Sockets, Threads: made.CPU.Threads}
	if size.Sockets > 0 {
		now.Sockets = size.Sockets
		if was := s.CurrentCPUTopology; was != nil {
			now.Sockets = max(now.Sockets, was.Sockets)
		}
	}
	s.CurrentCPUTopology = now
	if made.Memory == 0 {
		s.Memory = nil
		return
	}
	m := &kubevirt.MemoryStatus{GuestAtBoot: quantity(made.Memory), GuestCurrent: quantity(made.Memory), GuestRequested: quantity(made.Memory)}
	if size.Memory > 0 {
		m.GuestCurrent = quantity(size.Memory)
		if was := s.Memory; was != nil && was.GuestAtBoot != nil {
			m.GuestAtBoot = was.GuestAtBoot
		}
	}
	s.Memory = m
}

func quantity(bytes int64) *resource.Quantity {
	q := resource.NewQuantity(bytes, resource.BinarySI)
	_ = q.String() // as it comes back from the API server, or it would be written again
	return q
}

// keepCapacities keeps the capacities of PVCs that have been expanded since: package hotplug
// reports a larger one when the disk has grown.
func keepCapacities(now, before []kubevirt.VolumeStatus) {
	for _, was := range before {
		i := slices.IndexFunc(now, func(s kubevirt.VolumeStatus) bool { return s.Name == was.Name })
		if i < 0 || was.HotplugVolume != nil || was.PersistentVolumeClaimInfo == nil {
			continue
		}
		info, had := now[i].PersistentVolumeClaimInfo, was.PersistentVolumeClaimInfo
		size, has := had.Capacity[corev1.ResourceStorage]
		if info == nil || !has || info.ClaimName != had.ClaimName {
			continue
		}
		if larger := info.Capacity[corev1.ResourceStorage]; larger.Cmp(size) > 0 {
			info.Capacity = had.Capacity
		}
	}
}

// volumes returns the volumes with a disk, under the disk's name in libvirt, and what
// is known of their PVCs.
func volumes(s *kubevirt.VirtualMachineInstanceSpec, disks []vmspec.Disk, pvcs pod.PVCObjects) []kubevirt.VolumeStatus {
	info := map[string]*kubevirt.PersistentVolumeClaimInfo{}
	for _, use := range pod.PVCs(s) {
		info[use.Volume] = pvcs.Info(use.Name)
	}
	names := map[string]string{}
	for i, t := range vmspec.Targets(disks) {
		names[disks[i].Name] = t
	}
	var statuses []kubevirt.VolumeStatus
	for _, v := range s.Volumes {
		target, ok := names[v.Name]
		if !ok {
			continue
		}
		statuses = append(statuses, kubevirt.VolumeStatus{Name: v.Name, Target: target, PersistentVolumeClaimInfo: info[v.Name]})
	}
	return statuses
}
