package measures

import (
	"cmp"
	"slices"
	"strings"
	"time"

	kubevirt "kubevirt.io/api/core/v1"
)

// machines reports VirtualMachines.
type machines struct{ set }

const (
	machineInfo    = "vm_info"
	machineCreated = "vm_create_date_timestamp_seconds"
	machineCards   = "vm_vnic_info"
)

// Groups of a VM's printable status.
const (
	groupStarting   = "starting"
	groupRunning    = "running"
	groupMigrating  = "migrating"
	groupNotRunning = "non_running"
	groupError      = "error"
)

func groups() []string {
	return []string{groupStarting, groupRunning, groupMigrating, groupNotRunning, groupError}
}

// groupOf returns KubeVirt's group of a status.
func groupOf(s kubevirt.VirtualMachinePrintableStatus) string {
	switch s {
	case kubevirt.VirtualMachineStatusProvisioning, kubevirt.VirtualMachineStatusStarting,
		kubevirt.VirtualMachineStatusWaitingForVolumeBinding:
		return groupStarting
	case kubevirt.VirtualMachineStatusRunning:
		return groupRunning
	case kubevirt.VirtualMachineStatusMigrating:
		return groupMigrating
	case kubevirt.VirtualMachineStatusStopped, kubevirt.VirtualMachineStatusPaused,
		kubevirt.VirtualMachineStatusStopping, kubevirt.VirtualMachineStatusTerminating:
		return groupNotRunning
	}
	return groupError
}

// since returns the metric of when a VM got a status of a group.
func since(group string) string { return "vm_" + group + "_status_last_transition_timestamp_seconds" }

func newMachines() machines {
	m := machines{set{}}
	m.add(machineInfo, "1 for a VM, with what it is.",
		"name", "namespace", "os", "workload", "flavor", "machine_type", "instance_type", "preference", "status", "status_group")
	m.add(machineCreated, "When the VM was created, in seconds since the epoch.", "name", "namespace")
	m.add(machineCards, "1 for a network card of a VM's template.", cardLabels()...)
	m.add(requests, "What a VM asks for, by its template and its instance type.", "name", "namespace", "resource", "unit", "source")
	m.add(limits, "Limits of a VM's template.", "name", "namespace", "resource", "unit")
	for _, group := range groups() {
		m.add(since(group), "When a VM's status became "+group+", in seconds since the epoch, while it is.", "name", "namespace")
	}
	return m
}

func (m machines) collect(all *objects, send sender) {
	for i := range all.machines.Items {
		vm := &all.machines.Items[i]
		var system map[string]string
		machine, group := "", groupOf(vm.Status.PrintableStatus)
		if t := vm.Spec.Template; t != nil {
			system = t.ObjectMeta.Annotations
			if t.Spec.Domain.Machine != nil {
				machine = t.Spec.Domain.Machine.Type
			}
			sendCards(send, m.set[machineCards], vm.Namespace, vm.Name, &t.Spec)
			m.sendResources(send, vm, all)
		}
		instanceType, preference := "", ""
		if of := vm.Spec.Instancetype; of != nil {
			instanceType = of.Name
		}
		if of := vm.Spec.Preference; of != nil {
			preference = of.Name
		}
		send(m.set[machineInfo], 1, vm.Name, vm.Namespace, system[systemOS], system[systemWorkload], system[systemFlavor],
			machine, instanceType, preference, strings.ToLower(string(vm.Status.PrintableStatus)), group)
		send(m.set[machineCreated], float64(vm.CreationTimestamp.Unix()), vm.Name, vm.Namespace)
		send(m.set[since(group)], float64(changed(vm).Unix()), vm.Name, vm.Namespace)
	}
}

// changed returns when the last of a VM's conditions has changed.
func changed(vm *kubevirt.VirtualMachine) time.Time {
	if len(vm.Status.Conditions) == 0 {
		return vm.CreationTimestamp.Time
	}
	return slices.MaxFunc(vm.Status.Conditions, func(a, b kubevirt.VirtualMachineCondition) int {
		return cmp.Compare(a.LastTransitionTime.UnixNano(), b.LastTransitionTime.UnixNano())
	}).LastTransitionTime.Time
}
