package vmi

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// setDefaults fills in KubeVirt's defaults, so that an instance shows which VM it is.
func setDefaults(r *admission.Review, spec admission.Tree) {
	made, _ := vmspec.Preview(field.NewPath("spec"), r.VMI)
	admission.SetMachine(r, spec, made)
	setCPU(spec, made)
	if r.Old == nil {
		setModel(spec, made, r.Config)
		setConsoleLog(spec, r.Config)
	}
	setMemory(spec, r.VMI)
	setRequests(spec, r.VMI, r.Config)
	setInputs(spec, made)
	setBuses(spec, made)
	setNetwork(spec, r.VMI, r.Config)
}

func setCPU(spec admission.Tree, made vmspec.Spec) {
	cpu := admission.Child(admission.Child(spec, "domain"), "cpu")
	admission.SetDefault(cpu, "sockets", int64(made.CPU.Sockets))
	admission.SetDefault(cpu, "cores", int64(made.CPU.Cores))
	admission.SetDefault(cpu, "threads", int64(made.CPU.Threads))
}

// setModel sets the cluster's CPU model, which is one of x86.
func setModel(spec admission.Tree, made vmspec.Spec, c config.Config) {
	if model := c.Given.CPUModel; model != "" && made.Arch() == vmspec.AMD64 {
		admission.SetDefault(admission.Child(admission.Child(spec, "domain"), "cpu"), "model", model)
	}
}

// setConsoleLog keeps consoles out of logs where the cluster does.
func setConsoleLog(spec admission.Tree, c config.Config) {
	if o := c.Given.VirtualMachineOptions; o != nil && o.DisableSerialConsoleLog != nil {
		admission.SetDefault(admission.Child(admission.Child(spec, "domain"), "devices"), "logSerialConsole", false)
	}
}

// setMemory: the request, or else the limit, stands for the guest's memory.
func setMemory(spec admission.Tree, vmi *kubevirt.VirtualMachineInstanceSpec) {
	guest := vmi.Domain.Resources.Requests.Memory()
	if guest.IsZero() {
		guest = vmi.Domain.Resources.Limits.Memory()
	}
	if vmspec.CheckMemory(guest.Value()) == nil { // else no node has as much as is requested
		admission.SetDefault(admission.Child(admission.Child(spec, "domain"), "memory"), "guest", guest.String())
	}
}

// setRequests shows what the pod requests: a limit, or else the guest's memory or the cluster's request for a
// processor, stands for a request.
func setRequests(spec admission.Tree, vmi *kubevirt.VirtualMachineInstanceSpec, c config.Config) {
	d := vmi.Domain
	request := func(name corev1.ResourceName, q resource.Quantity) {
		if requested := d.Resources.Requests[name]; !q.IsZero() && requested.IsZero() {
			resources := admission.Child(admission.Child(spec, "domain"), "resources")
			admission.SetDefault(admission.Child(resources, "requests"), string(name), q.String())
		}
	}
	cpu := d.Resources.Limits[corev1.ResourceCPU]
	dedicated := d.CPU != nil && d.CPU.DedicatedCPUPlacement
	if given := c.Given.CPURequest; cpu.IsZero() && given != nil && !dedicated {
		cpu = *given
	}
	request(corev1.ResourceCPU, cpu)
	memory := d.Resources.Limits[corev1.ResourceMemory]
	if memory.IsZero() && d.Memory != nil && d.Memory.Guest != nil {
		memory = c.MemoryRequest(&d)
	}
	request(corev1.ResourceMemory, memory)
}

// setInputs shows the input devices, with their types and buses.
func setInputs(spec admission.Tree, made vmspec.Spec) {
	if len(made.Inputs) == 0 {
		return
	}
	var all []any
	for _, i := range made.Inputs {
		all = append(all, admission.Tree{"name": i.Name, "type": string(kubevirt.InputTypeTablet), "bus": i.Bus})
	}
	admission.Child(admission.Child(spec, "domain"), "devices")["inputs"] = all
}

func setBuses(spec admission.Tree, made vmspec.Spec) {
	disks, _ := admission.Child(admission.Child(spec, "domain"), "devices")["disks"].([]any)
	for i, d := range disks {
		disk, ok := d.(admission.Tree)
		if !ok || i >= len(made.Disks) {
			continue
		}
		kind := "disk"
		for _, other := range []string{"cdrom", "lun"} {
			if disk[other] != nil {
				kind = other
			}
		}
		admission.SetDefault(admission.Child(disk, kind), "bus", string(made.Disks[i].Bus))
	}
	addDisks(spec, made.Disks[min(len(disks), len(made.Disks)):])
}

// addDisks shows the disks of volumes that none was given for.
func addDisks(spec admission.Tree, more []vmspec.Disk) {
	if len(more) == 0 {
		return
	}
	devices := admission.Child(admission.Child(spec, "domain"), "devices")
	disks, _ := devices["disks"].([]any)
	for _, disk := range more {
		disks = append(disks, admission.Tree{"name": disk.Name, "disk": admission.Tree{"bus": string(disk.Bus)}})
	}
	devices["disks"] = disks
}

// setNetwork: without a network there is the pod's, with the cluster's binding. A card without a binding is a bridge.
func setNetwork(spec admission.Tree, vmi *kubevirt.VirtualMachineInstanceSpec, c config.Config) {
	devices := admission.Child(admission.Child(spec, "domain"), "devices")
	if len(vmi.Networks)+len(vmi.Domain.Devices.Interfaces) == 0 {
		if auto := vmi.Domain.Devices.AutoattachPodInterface; auto != nil && !*auto {
			return
		}
		spec["networks"] = []any{admission.Tree{"name": "default", "pod": admission.Tree{}}}
		card := admission.Tree{"name": "default"}
		if c.Interface() == kubevirt.MasqueradeInterface {
			card["masquerade"] = admission.Tree{}
		}
		devices["interfaces"] = []any{card}
	}
	interfaces, _ := devices["interfaces"].([]any)
	for _, i := range interfaces {
		if card, ok := i.(admission.Tree); ok && card["masquerade"] == nil && card["sriov"] == nil && card["binding"] == nil {
			admission.Child(card, "bridge")
		}
	}
}
