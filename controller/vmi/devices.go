package vmi

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// setMachine reports the VM's machine type, vCPUs, memory and disks as it has started. Package
// hotplug reports the disks that the VM has got since.
func setMachine(s *kubevirt.VirtualMachineInstanceStatus, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects) {
	made, _ := vmspec.Preview(field.NewPath("spec"), &vmi.Spec)
	s.Machine = &kubevirt.Machine{Type: made.Machine}
	s.CurrentCPUTopology = &kubevirt.CPUTopology{
		Cores: made.CPU.Cores, Sockets: made.CPU.Sockets, Threads: made.CPU.Threads,
	}
	s.Memory = memory(made.Memory)
	plugged := slices.DeleteFunc(s.VolumeStatus, func(v kubevirt.VolumeStatus) bool { return v.HotplugVolume == nil })
	s.VolumeStatus = append(volumes(&vmi.Spec, made.Disks, pvcs), plugged...)
	plug(s.Interfaces, made.Interfaces)
}

// plug adds to the cards what only the spec knows. No card of a running VM is unplugged.
func plug(cards []kubevirt.VirtualMachineInstanceNetworkInterface, made []vmspec.Interface) {
	for i := range cards {
		at := slices.IndexFunc(made, func(m vmspec.Interface) bool { return m.Name == cards[i].Name })
		if at < 0 {
			continue
		}
		cards[i].LinkState = string(kubevirt.InterfaceStateLinkUp)
		cards[i].QueueCount = int32(max(made[at].Queues, 1))
	}
}

func memory(bytes int64) *kubevirt.MemoryStatus {
	if bytes == 0 {
		return nil
	}
	q := resource.NewQuantity(bytes, resource.BinarySI)
	_ = q.String() // as it comes back from the API server, or it would be written again
	return &kubevirt.MemoryStatus{GuestAtBoot: q, GuestCurrent: q, GuestRequested: q}
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
