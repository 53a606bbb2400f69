package admission

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// warnings returns what has no effect, and what may keep a sound VM from starting on
// some nodes. kubectl prints it.
func (r *Review) warnings() []string {
	return slices.Concat(r.ignored(), r.tags(), r.obstacles())
}

// ignored returns warnings of names in a template.
func (r *Review) ignored() []string {
	templates := [][]string{slices.Concat([]string{"spec"}, r.rules.Within, []string{"template"})}
	if len(r.rules.Within) > 0 { // the template of VMs that this one is in
		templates = append(templates, []string{"spec", r.rules.Within[0]})
	}
	var all []string
	for _, template := range templates {
		path := append(template, "metadata")
		metadata, _, _ := unstructured.NestedMap(r.Object, path...)
		for _, name := range manifest.IgnoredNames() {
			if metadata[name] != nil && metadata[name] != "" {
				all = append(all, fmt.Sprintf("%s: has no effect: an instance's name and namespace follow from its owner's",
					field.NewPath(path[0], path[1:]...).Child(name)))
			}
		}
	}
	return all
}

// spec returns the path of the instance's spec.
func (r *Review) spec() *field.Path {
	if r.rules.Instance {
		return field.NewPath("spec")
	}
	return r.template().Child("spec")
}

// tags returns warnings of devices' tags without a config drive, on which guests read them.
func (r *Review) tags() []string {
	if r.VMI == nil || slices.ContainsFunc(r.VMI.Volumes, func(v kubevirt.Volume) bool { return v.CloudInitConfigDrive != nil }) {
		return nil
	}
	var all []string
	at, devices := r.spec().Child("domain", "devices"), r.VMI.Domain.Devices
	warn := func(list string, i int, tag string) {
		if tag != "" {
			all = append(all, fmt.Sprintf("%s: has no effect: guests read tags on a volume of kind cloudInitConfigDrive; add one",
				at.Child(list).Index(i).Child("tag")))
		}
	}
	for i, d := range devices.Disks {
		warn("disks", i, d.Tag)
	}
	for i, d := range devices.Interfaces {
		warn("interfaces", i, d.Tag)
	}
	for i, d := range devices.GPUs {
		warn("gpus", i, d.Tag)
	}
	for i, d := range devices.HostDevices {
		warn("hostDevices", i, d.Tag)
	}
	return all
}

func (r *Review) obstacles() []string {
	if r.VMI == nil {
		return nil
	}
	at := r.spec()
	var all []string
	switch memory := manifest.Memory(r.VMI); {
	case memory == 0 && !r.rules.Instance && !r.sized():
		all = append(all, fmt.Sprintf("%s: not set; a VM without memory does not start", at.Child("domain", "memory", "guest")))
	case memory > 0 && memory < leastMemory:
		all = append(all, fmt.Sprintf("%s: is %d MiB; no firmware runs with less than %d MiB, and the guest does not boot",
			at.Child("domain", "memory", "guest"), memory>>20, leastMemory>>20))
	}
	for i, card := range r.VMI.Domain.Devices.Interfaces {
		pod := slices.ContainsFunc(r.VMI.Networks, func(n kubevirt.Network) bool { return n.Name == card.Name && vmspec.IsPods(n) })
		if pod && card.Masquerade == nil && card.MacAddress != "" {
			all = append(all, fmt.Sprintf("%s: on the pod network with bridge, a node starts the VM only if this is the pod's "+
				"own address, or if the node's administrator permits others (vm.pod_network_mac); leave it out, or use masquerade",
				at.Child("domain", "devices", "interfaces").Index(i).Child("macAddress")))
		}
	}
	return all
}

// leastMemory is the least memory, in bytes, with which a guest's firmware runs. KubeVirt accepts less.
const leastMemory = 16 << 20

// checkMemory returns what is wrong with a template without memory whose VMs should run now. Others may get it later.
func (r *Review) checkMemory() field.ErrorList {
	if r.VMI == nil || r.rules.Instance || r.sized() || manifest.HasMemory(r.VMI) || !r.runs() {
		return nil
	}
	return field.ErrorList{manifest.MemoryRequired(r.spec())}
}

// runs reports whether the VM of a template should run as soon as the object exists.
func (r *Review) runs() bool {
	spec, _, _ := unstructured.NestedMap(r.Object, slices.Concat([]string{"spec"}, r.rules.Within)...)
	switch spec["runStrategy"] {
	case string(kubevirt.RunStrategyAlways), string(kubevirt.RunStrategyRerunOnFailure), string(kubevirt.RunStrategyOnce):
		return true
	}
	return spec["running"] == true
}

// sized reports whether an instance type sets the size of the template's instances.
func (r *Review) sized() bool {
	_, found, _ := unstructured.NestedMap(r.Object, slices.Concat([]string{"spec"}, r.rules.Within, []string{"instancetype"})...)
	return found
}
