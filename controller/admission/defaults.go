package admission

import (
	"encoding/json"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// tree is decoded JSON.
type tree = map[string]any

// setDefaults writes what the object doesn't say into it, as KubeVirt does: an
// instance then shows what machine it is. A template stays as its author wrote it,
// but for the machine type. It changes nothing that is given, and of the same object
// makes the same again.
func (r *review) setDefaults() error {
	if r.request.Kind.Kind == kindPreset {
		setDevices(r.object["spec"])
		return nil
	}
	spec, ok := withoutNulls(r.object["spec"]).(tree)
	if !ok {
		return fmt.Errorf("%s %s: no spec after it was checked", r.request.Kind.Kind, r.request.Name)
	}
	r.object["spec"] = spec
	if r.vmi == nil { // an instance type or a preference says what it says
		return nil
	}
	if r.old == nil {
		r.setFinalizer()
	}
	machine, _ := vmspec.Preview(field.NewPath("spec"), r.vmi)
	switch r.request.Kind.Kind {
	case kindSet:
		if spec["replicas"] == nil {
			spec["replicas"] = int64(1)
		}
		fallthrough
	case kindVM:
		of := child(child(spec, "template"), "spec")
		setDevices(of)
		if spec["preference"] == nil { // which may say of what type machines are
			setMachine(of, machine)
		}
		return nil
	}
	setMachine(spec, machine)
	setCPU(spec, machine)
	setMemory(spec, r.vmi)
	setBuses(spec, machine)
	setNetwork(spec, r.vmi)
	return nil
}

// patch answers with the difference between the request's object and r's.
func (r *review) patch() admission.Response {
	text, err := json.Marshal(r.object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encode object: %w", err))
	}
	return admission.PatchResponseFromRaw(r.request.Object.Raw, text)
}

func setMachine(spec tree, machine vmspec.Spec) {
	setDefault(child(child(spec, "domain"), "machine"), "type", machine.Machine)
}

// setDevices: the schema wants them, where they may well be a preset's, or left to others.
func setDevices(spec any) {
	if spec, ok := spec.(tree); ok {
		child(child(spec, "domain"), "devices")
	}
}

func setCPU(spec tree, machine vmspec.Spec) {
	cpu := child(child(spec, "domain"), "cpu")
	setDefault(cpu, "sockets", int64(machine.CPU.Sockets))
	setDefault(cpu, "cores", int64(machine.CPU.Cores))
	setDefault(cpu, "threads", int64(machine.CPU.Threads))
}

// setMemory: the request, or else the limit, stands for the guest's memory.
func setMemory(spec tree, vmi *kubevirt.VirtualMachineInstanceSpec) {
	guest := vmi.Domain.Resources.Requests.Memory()
	if guest.IsZero() {
		guest = vmi.Domain.Resources.Limits.Memory()
	}
	if !guest.IsZero() {
		setDefault(child(child(spec, "domain"), "memory"), "guest", guest.String())
	}
}

func setBuses(spec tree, machine vmspec.Spec) {
	disks, _ := child(child(spec, "domain"), "devices")["disks"].([]any)
	for i, d := range disks {
		disk, ok := d.(tree)
		if !ok || i >= len(machine.Disks) {
			continue
		}
		kind := "disk"
		if disk["cdrom"] != nil {
			kind = "cdrom"
		}
		setDefault(child(disk, kind), "bus", string(machine.Disks[i].Bus))
	}
	addDisks(spec, machine.Disks[min(len(disks), len(machine.Disks)):])
}

// addDisks shows the disks of volumes that none was given for.
func addDisks(spec tree, more []vmspec.Disk) {
	if len(more) == 0 {
		return
	}
	devices := child(child(spec, "domain"), "devices")
	disks, _ := devices["disks"].([]any)
	for _, disk := range more {
		disks = append(disks, tree{"name": disk.Name, "disk": tree{"bus": string(disk.Bus)}})
	}
	devices["disks"] = disks
}

// setNetwork: without a network there is the pod's, and without a binding a bridge.
func setNetwork(spec tree, vmi *kubevirt.VirtualMachineInstanceSpec) {
	devices := child(child(spec, "domain"), "devices")
	if len(vmi.Networks)+len(vmi.Domain.Devices.Interfaces) == 0 {
		if auto := vmi.Domain.Devices.AutoattachPodInterface; auto != nil && !*auto {
			return
		}
		spec["networks"] = []any{tree{"name": "default", "pod": tree{}}}
		devices["interfaces"] = []any{tree{"name": "default"}}
	}
	interfaces, _ := devices["interfaces"].([]any)
	for _, i := range interfaces {
		if card, ok := i.(tree); ok && card["masquerade"] == nil {
			child(card, "bridge")
		}
	}
}

// child returns the object of a key, which it makes if there is none.
func child(of tree, key string) tree {
	value, ok := of[key].(tree)
	if !ok {
		value = tree{}
		of[key] = value
	}
	return value
}

// setDefault sets what is not set: nothing, an empty string, or the number 0.
func setDefault(of tree, key string, value any) {
	switch of[key] {
	case nil, "", int64(0):
		of[key] = value
	}
}

// withoutNulls returns a copy without null, which stands for what is not set and
// which the schema takes nowhere.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case tree:
		result := make(tree, len(value))
		for key, v := range value {
			if v != nil {
				result[key] = withoutNulls(v)
			}
		}
		return result
	case []any:
		result := make([]any, 0, len(value))
		for _, v := range value {
			if v != nil {
				result = append(result, withoutNulls(v))
			}
		}
		return result
	}
	return value
}
