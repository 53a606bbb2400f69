package admission_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestWarnsOfNames: names in the templates of a pool have no effect, and are no error.
func TestWarnsOfNames(t *testing.T) {
	r := newRig(t)
	object := r.taken(t, "pool")
	for _, path := range [][]string{
		{"spec", "virtualMachineTemplate", "metadata", "name"},
		{"spec", "virtualMachineTemplate", "spec", "template", "metadata", "namespace"},
	} {
		if err := unstructured.SetNestedField(object.Object, "x", path...); err != nil {
			t.Fatal(err)
		}
	}
	answer := r.ask(t, admission.PathValidate, encoded(t, object), nil)
	want := "spec.virtualMachineTemplate.spec.template.metadata.namespace: has no effect: an instance's name and namespace follow from its owner's\n" +
		"spec.virtualMachineTemplate.metadata.name: has no effect: an instance's name and namespace follow from its owner's"
	if got := strings.Join(answer.Warnings, "\n"); !answer.Allowed || got != want {
		t.Errorf("allowed: %t, warnings: %s", answer.Allowed, got)
	}
}

// TestWarnsOfMAC: whether a node permits a MAC address on the pod network is its own
// setting, so the VM is accepted with a warning.
func TestWarnsOfMAC(t *testing.T) {
	r := newRig(t)
	const vmi = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: guest, namespace: shop}
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces:
      - {name: lan, bridge: {}, macAddress: "02:00:00:00:00:01"}
      - {name: default, BINDING: {}, macAddress: "02:00:00:00:00:02"}
  networks:
  - {name: lan, multus: {networkName: lan}}
  - {name: default, pod: {}}
  volumes:
  - {name: root, containerDisk: {image: example.com/guest:1}}
`
	for binding, path := range map[string]string{"bridge": "spec.domain.devices.interfaces[1].macAddress: ", "masquerade": ""} {
		answer := r.ask(t, admission.PathValidate, manifest(t, strings.Replace(vmi, "BINDING", binding, 1), "v1"), nil)
		if !answer.Allowed {
			t.Fatalf("%s: %v", binding, answer.Result)
		}
		if path == "" && len(answer.Warnings) == 0 {
			continue
		}
		if len(answer.Warnings) != 1 || !strings.HasPrefix(answer.Warnings[0], path) || !strings.Contains(answer.Warnings[0], "vm.pod_network_mac") {
			t.Errorf("%s: %q", binding, answer.Warnings)
		}
	}
}

// TestWarnsOfMemory: a template may have no memory yet, since an instance type may be named later.
func TestWarnsOfMemory(t *testing.T) {
	r := newRig(t)
	const vm = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: guest, namespace: shop}
spec:
  runStrategy: Halted
  TYPE
  template: {spec: {domain: {devices: {}}}}
`
	for line, want := range map[string]string{
		"": "spec.template.spec.domain.memory.guest: not set; a VM without memory does not start", "instancetype: {name: missing}": "",
	} {
		answer := r.ask(t, admission.PathValidate, manifest(t, strings.Replace(vm, "TYPE", line, 1), "v1"), nil)
		if got := strings.Join(answer.Warnings, "\n"); !answer.Allowed || got != want {
			t.Errorf("%q: allowed: %t, warnings: %s", line, answer.Allowed, got)
		}
	}
	for _, strategy := range []string{"runStrategy: Always", "runStrategy: RerunOnFailure", "runStrategy: Once", "running: true"} {
		text := strings.NewReplacer("runStrategy: Halted", strategy, "TYPE", "").Replace(vm)
		for _, path := range []string{admission.PathDefault, admission.PathValidate} {
			answer := r.ask(t, path, manifest(t, text, "v1"), nil)
			if answer.Allowed || !strings.Contains(answer.Result.Message, "spec.template.spec.domain.memory.guest: Required value: set the size of the VM's memory") {
				t.Errorf("%s: allowed: %t, %+v", strategy, answer.Allowed, answer.Result)
			}
		}
	}
	small := strings.NewReplacer("domain: {", "domain: {memory: {guest: 1Mi}, ", "TYPE", "").Replace(vm)
	answer := r.ask(t, admission.PathValidate, manifest(t, small, "v1"), nil)
	if got := strings.Join(answer.Warnings, "\n"); !answer.Allowed || !strings.Contains(got, "spec.template.spec.domain.memory.guest: is 1 MiB; no firmware runs with less than 16 MiB") {
		t.Errorf("allowed: %t, warnings: %s", answer.Allowed, got)
	}
}

// TestWarnsOfTags: admission accepts the tags of devices, as KubeVirt does, and says that no guest reads them
// without a config drive.
func TestWarnsOfTags(t *testing.T) {
	const vmi = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: guest, namespace: shop}
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      disks:
      - {name: root, disk: {bus: virtio}}
      - {name: data, disk: {bus: virtio}, tag: scratch}
      interfaces:
      - {name: default, masquerade: {}, tag: lan}
      gpus:
      - {name: gpu, deviceName: example.com/gpu, tag: compute}
      hostDevices:
      - {name: nic, deviceName: example.com/nic, tag: fast}
  networks:
  - {name: default, pod: {}}
  volumes:
  - {name: root, containerDisk: {image: example.com/guest:1}}
  - {name: data, emptyDisk: {capacity: 1Gi}}
`
	answer := newRig(t).ask(t, admission.PathValidate, manifest(t, vmi, "v1"), nil)
	if !answer.Allowed {
		t.Fatal(answer.Result)
	}
	var paths []string
	for _, warning := range answer.Warnings {
		path, _, _ := strings.Cut(warning, ": has no effect: guests read tags on a volume of kind cloudInitConfigDrive; ")
		paths = append(paths, strings.TrimPrefix(path, "spec.domain.devices."))
	}
	if got, want := strings.Join(paths, " "), "disks[1].tag interfaces[0].tag gpus[0].tag hostDevices[0].tag"; got != want {
		t.Errorf("got warnings of %s, want %s", got, want)
	}

	drive := vmi + "  - {name: drive, cloudInitConfigDrive: {userData: x}}\n"
	drive = strings.Replace(drive, "disks:\n", "disks:\n      - {name: drive, disk: {bus: virtio}}\n", 1)
	answer = newRig(t).ask(t, admission.PathValidate, manifest(t, drive, "v1"), nil)
	if !answer.Allowed || len(answer.Warnings) > 0 {
		t.Errorf("with a config drive: %+v, warnings %q", answer.Result, answer.Warnings)
	}
}
