package vmi

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// migratable returns the condition that says whether the instance can be migrated, and
// the first reason why not, as KubeVirt words it.
func migratable(vmi *kubevirt.VirtualMachineInstance, v view) cond {
	c := cond{Type: kubevirt.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse}
	fixed := fixedDevices(vmi)
	switch {
	case len(fixed) > 0:
		c.Reason, c.Message = fixed[0].reason, fixed[0].message
	case v.ownAddress != "":
		c.Reason, c.Message = kubevirt.VirtualMachineInstanceReasonInterfaceNotMigratable, v.ownAddress
	case otherAddresses(vmi, v):
		c.Reason, c.Message = kubevirt.VirtualMachineInstanceReasonInterfaceNotMigratable, vmi.Status.MigrationState.FailureReason
	case pausedByUser(vmi, v):
		c.Reason = kubevirt.VirtualMachineInstanceReasonNotMigratable
		c.Message = "cannot migrate VMI: the guest is paused, and would run on the other node; unpause it first"
	case len(vmi.Spec.Domain.Devices.Filesystems) > 0:
		c.Reason, c.Message = kubevirt.VirtualMachineInstanceReasonVirtIOFSNotMigratable, "VMI uses virtiofs"
	default:
		if why := unshared(vmi, v.pvcs); why != "" {
			c.Reason, c.Message = kubevirt.VirtualMachineInstanceReasonDisksNotMigratable, why
			return c
		}
		// The node knows what its QEMU and its version can do.
		if node := conditionOf(v.pod, condition.LiveMigratable); node != nil && node.Status == corev1.ConditionFalse {
			c.Reason, c.Message = kubevirt.VirtualMachineInstanceReasonNotMigratable, node.Message
			return c
		}
		c.Status = corev1.ConditionTrue
	}
	return c
}

// otherAddresses reports whether the last migration was refused, since the pod on the other node had other addresses than the
// guest. The next one would be, too, unless the instance gets another network.
func otherAddresses(vmi *kubevirt.VirtualMachineInstance, v view) bool {
	m := vmi.Status.MigrationState
	return m != nil && m.Failed && strings.Contains(m.FailureReason, order.OtherAddresses) &&
		v.pod != nil && m.SourcePod == v.pod.Name && !pod.OtherNetworks(vmi, v.pod)
}

// pausedByUser reports whether a user has paused the guest, and no migration has it.
func pausedByUser(vmi *kubevirt.VirtualMachineInstance, v view) bool {
	c := v.trueCondition(condition.Paused)
	return c != nil && c.Reason == condition.ReasonPausedByUser && !Migrating(vmi)
}

// obstacle is why an instance stays on its node, in KubeVirt's words.
type obstacle struct{ reason, message string }

// fixedDevices returns what of an instance stays on its node, whatever its disks are.
func fixedDevices(vmi *kubevirt.VirtualMachineInstance) []obstacle {
	var all []obstacle
	if bridged(&vmi.Spec) && !vmspec.AddressMoves(vmi.Annotations) {
		all = append(all, obstacle{
			kubevirt.VirtualMachineInstanceReasonInterfaceNotMigratable,
			"cannot migrate VMI which does not use masquerade to connect to the pod network",
		})
	}
	if usesHostDevices(&vmi.Spec) {
		all = append(all, obstacle{kubevirt.VirtualMachineInstanceReasonHostDeviceNotMigratable, "VMI uses a PCI host devices"})
	}
	if s := vmi.Spec.Domain.LaunchSecurity; s != nil && s.TDX != nil {
		all = append(all, obstacle{kubevirt.VirtualMachineInstanceReasonTDXNotMigratable, "VMI uses TDX"})
	} else if s != nil {
		all = append(all, obstacle{kubevirt.VirtualMachineInstanceReasonSEVNotMigratable, "VMI uses SEV"})
	}
	if hypervPassthrough(&vmi.Spec) {
		all = append(all, obstacle{kubevirt.VirtualMachineInstanceReasonHypervPassthroughNotMigratable, "VMI uses hyperv passthrough"})
	}
	return all
}

// storageMigratable returns the condition that says whether the instance could be migrated if
// all of its disks could. Its message has all reasons, as in KubeVirt.
func storageMigratable(vmi *kubevirt.VirtualMachineInstance) cond {
	c := cond{Type: kubevirt.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionTrue}
	var why []string
	for _, o := range fixedDevices(vmi) {
		why = append(why, o.reason+": "+o.message)
	}
	if len(why) > 0 {
		c.Status, c.Reason = corev1.ConditionFalse, kubevirt.VirtualMachineInstanceReasonNotMigratable
		c.Message = strings.Join(why, ", ")
	}
	return c
}

// usesHostDevices reports whether the guest has devices of its node.
func usesHostDevices(s *kubevirt.VirtualMachineInstanceSpec) bool {
	d := s.Domain.Devices
	return len(d.HostDevices)+len(d.GPUs) > 0 ||
		slices.ContainsFunc(d.Interfaces, func(i kubevirt.Interface) bool { return i.SRIOV != nil })
}

// hypervPassthrough reports whether the guest has all Hyper-V features of its node.
func hypervPassthrough(s *kubevirt.VirtualMachineInstanceSpec) bool {
	f := s.Domain.Features
	if f == nil || f.HypervPassthrough == nil {
		return false
	}
	enabled := f.HypervPassthrough.Enabled
	return enabled == nil || *enabled
}

// bridged reports whether the guest has the address of its pod, which moves only by an annotation.
func bridged(s *kubevirt.VirtualMachineInstanceSpec) bool {
	if len(s.Networks) == 0 && len(s.Domain.Devices.Interfaces) == 0 {
		auto := s.Domain.Devices.AutoattachPodInterface
		return auto == nil || *auto
	}
	at := slices.IndexFunc(s.Networks, vmspec.IsPods)
	if at < 0 {
		return false
	}
	return !slices.ContainsFunc(s.Domain.Devices.Interfaces, func(i kubevirt.Interface) bool {
		// The node knows the registration of a network binding plug-in.
		return i.Name == s.Networks[at].Name && (i.Masquerade != nil || i.Binding != nil)
	})
}

// unshared returns why the target of a migration could not use the instance's disks.
func unshared(vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects) string {
	const rule = "live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"
	for _, use := range pod.PVCs(&vmi.Spec) {
		if use.Dump { // the target's node gets it after the guest
			continue
		}
		if slices.ContainsFunc(vmi.Status.MigratedVolumes, func(m kubevirt.StorageMigratedVolumeInfo) bool { return m.VolumeName == use.Volume }) {
			continue // the target has another one
		}
		pvc := pvcs[use.Name]
		if pvc == nil {
			return fmt.Sprintf("cannot migrate VMI: Unable to determine if PVC %s is shared, %s", use.Name, rule)
		}
		shared := slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany) ||
			slices.Contains(pvc.Spec.AccessModes, corev1.ReadOnlyMany) && (use.ReadOnly || use.Ephemeral)
		if !shared {
			return fmt.Sprintf("cannot migrate VMI: PVC %s is not shared, %s", use.Name, rule)
		}
	}
	if claim := detaching(vmi); claim != "" {
		return fmt.Sprintf("cannot migrate VMI: PVC %s is not shared, %s", claim, rule)
	}
	if slices.ContainsFunc(vmi.Spec.Volumes, func(v kubevirt.Volume) bool {
		return v.HostDisk != nil && (v.HostDisk.Shared == nil || !*v.HostDisk.Shared)
	}) {
		return "cannot migrate VMI with non-shared HostDisk"
	}
	return ""
}

// migrationMethod says whether a migration copies disks, as KubeVirt names it: all but
// those on PVCs and the read-only ones.
func migrationMethod(s *kubevirt.VirtualMachineInstanceSpec) kubevirt.VirtualMachineInstanceMigrationMethod {
	onPVC := map[string]bool{}
	for _, use := range pod.PVCs(s) {
		onPVC[use.Volume] = !use.Ephemeral
	}
	for _, v := range s.Volumes {
		at := slices.IndexFunc(s.Domain.Devices.Disks, func(d kubevirt.Disk) bool { return d.Name == v.Name })
		readOnly := at >= 0 && s.Domain.Devices.Disks[at].CDRom != nil
		if !onPVC[v.Name] && !readOnly && v.HostDisk == nil {
			return kubevirt.BlockMigration
		}
	}
	return kubevirt.LiveMigration
}

// IsMigratable reports whether the instance can be migrated, and the condition that says
// why not; nil if there is none yet.
func IsMigratable(vmi *kubevirt.VirtualMachineInstance) (bool, *kubevirt.VirtualMachineInstanceCondition) {
	c := find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceIsMigratable)
	return c != nil && c.Status == corev1.ConditionTrue, c
}
