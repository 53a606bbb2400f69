package clone

import (
	"strings"
	"testing"

	api "kubevirt.io/api/clone/v1beta1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/restore"
)

// source is a VM with all that a clone changes.
func source() *snapshotapi.VirtualMachine {
	vm := new(snapshotapi.VirtualMachine)
	vm.Name = "web"
	vm.Labels = map[string]string{"app/a": "1", "app/b": "2", "tier~x": "3"}
	vm.Annotations = map[string]string{"note": "1"}
	vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"name": "web"}
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{"one": "1", "two": "2"}
	vm.Spec.Template.Spec.Domain.Firmware = &kubevirt.Firmware{UUID: "u", Serial: "s"}
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "a", MacAddress: "02:00:00:00:00:01"}, {Name: "b"}, {Name: "c"}}
	return vm
}

// TestPatches: a clone has another identity than its source, the labels and annotations that
// filters keep, and the author's patches.
func TestPatches(t *testing.T) {
	serial := "new"
	for want, spec := range map[string]api.VirtualMachineCloneSpec{
		"remove …/devices/interfaces/0/macAddress, remove …/firmware/serial, remove …/firmware/uuid": {},
		"remove …/devices/interfaces/0/macAddress, add …/devices/interfaces/1/macAddress 02:00:00:00:00:09, add …/firmware/serial new, remove …/firmware/uuid": {
			NewMacAddresses: map[string]string{"b": "02:00:00:00:00:09", "c": ""}, NewSMBiosSerial: &serial,
		},
		"remove …/devices/interfaces/0/macAddress, remove …/firmware/serial, remove …/firmware/uuid, " +
			"remove /metadata/labels/app~1b, remove /metadata/labels/tier~0x, remove /metadata/annotations, " +
			"remove /spec/template/metadata/annotations/two, own": {
			LabelFilters: []string{"app/*", "!app/b"}, AnnotationFilters: []string{"other"},
			Template: api.VirtualMachineCloneTemplateFilters{LabelFilters: []string{"*"}, AnnotationFilters: []string{"!two", "*"}},
			Patches:  []string{"own"},
		},
		"remove …/devices/interfaces/0/macAddress, remove …/firmware/serial, remove …/firmware/uuid, remove /metadata/labels": {
			LabelFilters: []string{},
		},
	} {
		all, err := patches(source(), &spec)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(all, ", ")
		for _, r := range [][2]string{
			{"/spec/template/spec/domain", "…"}, {`{"op":"`, ""}, {`","path":"`, " "}, {`","value":"`, " "}, {`"}`, ""},
		} {
			got = strings.ReplaceAll(got, r[0], r[1])
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	vm := source()
	vm.Spec.Template.Spec.Domain.Firmware = nil
	if all, err := patches(vm, &api.VirtualMachineCloneSpec{}); err != nil || len(all) != 1 {
		t.Errorf("a VM without firmware: %v, %v", all, err)
	}
	all, err := patches(source(), &api.VirtualMachineCloneSpec{NewSMBiosSerial: &serial, LabelFilters: []string{"!tier*", "*"}})
	if err != nil {
		t.Fatal(err)
	}
	of := source()
	made, err := restore.Patched(&kubevirt.VirtualMachine{ObjectMeta: of.ObjectMeta, Spec: of.Spec}, all)
	if err != nil {
		t.Fatal(err)
	}
	f := made.Spec.Template.Spec.Domain.Firmware
	if f.Serial != "new" || f.UUID != "" || made.Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress != "" || len(made.Labels) != 2 {
		t.Errorf("the clone: %+v, firmware %+v", made, f)
	}
}

// TestMany: a restore takes a bounded number of patches.
func TestMany(t *testing.T) {
	vm := source()
	for i := range restore.MaxPatches + 1 {
		vm.Annotations["x"+strings.Repeat("y", i)] = ""
	}
	_, err := patches(vm, &api.VirtualMachineCloneSpec{AnnotationFilters: []string{"note"}})
	if err == nil || !strings.Contains(err.Error(), "filter out fewer labels and annotations") {
		t.Errorf("%v", err)
	}
}

// TestFilters: which filters a manifest may have.
func TestFilters(t *testing.T) {
	for text, valid := range map[string]bool{
		"key": true, "key*": true, "!key": true, "!key*": true, "*": true, "!*": true, "a.b/c-d": true,
		"": false, "!": false, "k*y": false, "*key": false, "key!": false, "!!key": false, "**": false, strings.Repeat("k", maxFilter+1): false,
	} {
		if problem := filter(nil, text); (problem == nil) != valid {
			t.Errorf("%q: %v", text, problem)
		}
	}
}
