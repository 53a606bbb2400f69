package admission_test

import (
	"bytes"
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/config"
)

// configured are webhooks in a cluster whose KubeVirt object has this configuration.
func configured(t *testing.T, given kubevirt.KubeVirtConfiguration) admission.Webhooks {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := kubevirt.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "nodevirt", Name: config.Name}}
	object.Spec.Configuration = given
	return admission.Webhooks{Config: config.Source{
		Namespace: "nodevirt", Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).Build(),
	}}
}

const plainVMI = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: plain, namespace: default}
spec:
  domain:
    memory: {guest: 512Mi}
    devices: {disks: [{name: root}]}
  volumes: [{name: root, containerDisk: {image: example.com/guest:1}}]
`

// TestClustersDefaults: an instance gets what the KubeVirt object says, and shows it.
func TestClustersDefaults(t *testing.T) {
	r := newRigIn(t, configured(t, kubevirt.KubeVirtConfiguration{
		CPUModel: "Haswell", MachineType: "pc-q35-7.2",
		NetworkConfiguration:   &kubevirt.NetworkConfiguration{NetworkInterface: "masquerade", PermitBridgeInterfaceOnPodNetwork: new(false)},
		DeveloperConfiguration: &kubevirt.DeveloperConfiguration{MemoryOvercommit: 200},
		VirtualMachineOptions:  &kubevirt.VirtualMachineOptions{DisableSerialConsoleLog: &kubevirt.DisableSerialConsoleLog{}},
	}))
	made := r.defaulted(t, manifest(t, plainVMI, ""), nil)
	var tree map[string]any
	if err := json.Unmarshal(made, &tree); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"Haswell":    {"spec", "domain", "cpu", "model"},
		"pc-q35-7.2": {"spec", "domain", "machine", "type"},
		"256Mi":      {"spec", "domain", "resources", "requests", "memory"},
		"512Mi":      {"spec", "domain", "memory", "guest"},
	} {
		if got, _, _ := unstructured.NestedString(tree, want...); got != path {
			t.Errorf("%v is %q, want %q", want, got, path)
		}
	}
	if logged, said, _ := unstructured.NestedBool(tree, "spec", "domain", "devices", "logSerialConsole"); logged || !said {
		t.Errorf("the console is logged: %t, %t", logged, said)
	}
	cards, _, _ := unstructured.NestedSlice(tree, "spec", "domain", "devices", "interfaces")
	if card, _ := cards[0].(map[string]any); card["masquerade"] == nil {
		t.Errorf("interfaces: %v", cards)
	}
	if answer := r.ask(t, admission.PathValidate, made, nil); !answer.Allowed {
		t.Errorf("refused: %s", answer.Result.Message)
	}
	if again := r.defaulted(t, made, made); string(again) != string(made) {
		t.Errorf("an update changes the instance:\n%s\n%s", made, again)
	}
}

// TestGateOfObject: a feature gate of the KubeVirt object lets instances have what a flag would.
func TestGateOfObject(t *testing.T) {
	disk := manifest(t, `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: local, namespace: default}
spec:
  domain: {memory: {guest: 64Mi}, devices: {disks: [{name: root}]}}
  volumes: [{name: root, hostDisk: {path: /data/disk.img, type: Disk}}]
`, "")
	for gate, allowed := range map[string]bool{"HostDisk": true, "Sidecar": false} {
		r := newRigIn(t, configured(t, kubevirt.KubeVirtConfiguration{
			DeveloperConfiguration: &kubevirt.DeveloperConfiguration{FeatureGates: []string{gate}},
		}))
		if answer := r.ask(t, admission.PathValidate, disk, nil); answer.Allowed != allowed {
			t.Errorf("gate %s: allowed %t: %+v", gate, answer.Allowed, answer.Result)
		}
	}

	sized := bytes.ReplaceAll(disk, []byte(`"type":"Disk"`), []byte(`"type":"Disk","capacity":"1Gi"`))
	r := newRigIn(t, configured(t, kubevirt.KubeVirtConfiguration{
		DeveloperConfiguration: &kubevirt.DeveloperConfiguration{FeatureGates: []string{"HostDisk"}},
	}))
	answer := r.ask(t, admission.PathValidate, sized, nil)
	if want := "spec.volumes[0].hostDisk.capacity: goes with type DiskOrCreate"; answer.Allowed || refusal(t, answer) != want {
		t.Errorf("a size of a disk that exists: allowed %t: %+v", answer.Allowed, answer.Result)
	}
}

// TestOneKubeVirt: only the object that the controller honours is accepted.
func TestOneKubeVirt(t *testing.T) {
	r := newRigIn(t, configured(t, kubevirt.KubeVirtConfiguration{}))
	for where, want := range map[[2]string]string{
		{"nodevirt", "kubevirt"}: "",
		{"nodevirt", "second"}:   "metadata.name: the cluster has one KubeVirt object, kubevirt in namespace nodevirt; change that one",
		{"default", "kubevirt"}:  "metadata.namespace: the cluster's KubeVirt object is in the namespace of nodevirt-controller, nodevirt",
	} {
		object := manifest(t, "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {namespace: "+where[0]+", name: "+where[1]+"}\nspec: {}\n", "")
		answer := r.ask(t, admission.PathValidate, object, nil)
		switch {
		case answer.Allowed != (want == ""):
			t.Errorf("%v: allowed %t: %+v", where, answer.Allowed, answer.Result)
		case want != "" && refusal(t, answer) != want:
			t.Errorf("%v: %s", where, refusal(t, answer))
		}
		if first := r.ask(t, admission.PathDefault, object, nil); first.Allowed != answer.Allowed {
			t.Errorf("%v: the first webhook decides otherwise: %+v", where, first.Result)
		}
	}
}
