package vmi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/pod"
)

func rules() admission.Rules {
	return admission.Rules{
		Instance:    true,
		Finalizer:   kubevirt.VirtualMachineInstanceFinalizer,
		Check:       check,
		CheckUpdate: checkUpdate,
		Default:     setDefaults,
		Presets:     admission.InstanceSubject,
	}
}

func check(r *admission.Review) field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	tree, ok := r.Object["spec"]
	if !ok || tree == nil {
		return field.ErrorList{field.Required(spec, "describe the VM here")}
	}
	vmi, problems := manifest.CheckVMI(spec, tree)
	r.VMI, r.Annotations = vmi, r.Meta.Annotations
	return append(problems, admission.CheckAnnotations(meta.Child("annotations"), r.Meta.Annotations, vmi)...)
}

// checkUpdate refuses changes of an instance's spec, since its pod and its guest
// exist already, except for the volumes and network cards that a VM which runs can get and lose, for more vCPUs
// and memory up to its maximums, for the links of its network cards, for its secondary networks and its placement,
// by which migrations go, for the PVCs to which its disks were copied, and for less time to shut down. The spec of a VirtualMachine may change: the next instance has it.
func checkUpdate(r *admission.Review) field.ErrorList {
	old, now, problems := withoutPlugged(r)
	old, now, p := withoutNewCards(r, old, now)
	problems = append(problems, p...)
	old, now = withoutPlacement(old), withoutPlacement(now)
	old, now = withoutMoved(r, old, now)
	may := changing(old, now)
	for _, at := range differences(field.NewPath("spec"), old, now) {
		if slices.Contains(may, at.String()) {
			continue
		}
		problems = append(problems, field.Forbidden(at,
			"an instance can't be changed; delete and recreate it, or change its VirtualMachine and restart that"))
	}
	return problems
}

// withoutPlacement returns a decoded spec without what says on which nodes the VM may run.
func withoutPlacement(spec any) any {
	fields, is := spec.(map[string]any)
	if !is {
		return spec
	}
	fields = maps.Clone(fields)
	for _, key := range []string{"nodeSelector", "affinity", "tolerations"} {
		delete(fields, key)
	}
	return fields
}

// withoutMoved returns decoded specs without the volumes that change to the PVCs to which the instance's status has its
// disks copied.
func withoutMoved(r *admission.Review, before, after any) (was, is any) {
	var status kubevirt.VirtualMachineInstanceStatus
	if typed(r.Old["status"], &status) != nil || len(status.MigratedVolumes) == 0 {
		return before, after
	}
	var now kubevirt.VirtualMachineInstanceSpec
	if typed(after, &now) != nil {
		return before, after
	}
	moved := map[string]bool{}
	for _, m := range status.MigratedVolumes {
		moved[m.VolumeName] = m.DestinationPVCInfo != nil && m.DestinationPVCInfo.ClaimName == pod.ClaimOf(pod.VolumeOf(&now, m.VolumeName))
	}
	strip := func(spec any) any {
		fields, _ := spec.(map[string]any)
		list, _ := fields["volumes"].([]any)
		list = slices.Clone(list)
		for i, v := range list {
			volume, _ := v.(map[string]any)
			if name, _ := volume["name"].(string); moved[name] {
				list[i] = map[string]any{"name": name}
			}
		}
		fields = maps.Clone(fields)
		fields["volumes"] = list
		return fields
	}
	return strip(before), strip(after)
}

// differences returns the paths at which two decoded JSON values differ.
func differences(at *field.Path, a, b any) []*field.Path {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	var paths []*field.Path
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			paths = append(paths, differences(at.Child(key), a[key], b[key])...)
		}
		return paths
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			paths = append(paths, differences(at.Index(i), a[i], b[i])...)
		}
		return paths
	}
	return []*field.Path{at}
}

// changing returns the paths at which a running instance may get more, less time to shut down, another state of a
// link or another secondary network, and does. The check of the whole spec compares them with the maximums.
func changing(before, after any) []string {
	var old, now kubevirt.VirtualMachineInstanceSpec
	if typed(before, &old) != nil || typed(after, &now) != nil {
		return nil
	}
	var paths []string
	for i := range min(len(old.Domain.Devices.Interfaces), len(now.Domain.Devices.Interfaces)) {
		if old.Domain.Devices.Interfaces[i].State != now.Domain.Devices.Interfaces[i].State {
			paths = append(paths, fmt.Sprintf("spec.domain.devices.interfaces[%d].state", i))
		}
	}
	for i := range min(len(old.Networks), len(now.Networks)) {
		a, b := old.Networks[i], now.Networks[i]
		if a.Name == b.Name && pod.Replaceable(&old, a) && pod.Replaceable(&now, b) && a.Multus.NetworkName != b.Multus.NetworkName {
			paths = append(paths, fmt.Sprintf("spec.networks[%d].multus.networkName", i))
		}
	}
	if t := now.TerminationGracePeriodSeconds; t != nil && *t < pod.GracePeriod(old.TerminationGracePeriodSeconds) {
		paths = append(paths, "spec.terminationGracePeriodSeconds")
	}
	if a, b := old.Domain.CPU, now.Domain.CPU; a != nil && b != nil && a.MaxSockets > 0 && b.Sockets >= a.Sockets {
		paths = append(paths, "spec.domain.cpu.sockets")
	}
	a, b := old.Domain.Memory, now.Domain.Memory
	if a == nil || b == nil || a.MaxGuest == nil || a.Guest == nil || b.Guest == nil || b.Guest.Cmp(*a.Guest) < 0 {
		return paths
	}
	paths = append(paths, "spec.domain.memory.guest")
	// The request grows by as much, or by the part that an instance type overcommits to.
	request := old.Domain.Resources.Requests[corev1.ResourceMemory]
	most := request.DeepCopy()
	most.Add(*b.Guest)
	most.Sub(*a.Guest)
	if q, has := now.Domain.Resources.Requests[corev1.ResourceMemory]; has && q.Cmp(request) >= 0 && q.Cmp(most) <= 0 {
		paths = append(paths, "spec.domain.resources.requests.memory")
	}
	return paths
}

// typed decodes a part of an object into a type of the API.
func typed(tree, into any) error {
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return decode.JSON(text, into)
}
