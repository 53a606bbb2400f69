package admission_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	instancetype "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestTypes: a VM that its instance type or its preference contradicts is refused, if they exist.
func TestTypes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := instancetype.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := newRigIn(t, admission.Webhooks{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&instancetype.VirtualMachineInstancetype{
			ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: "shop"},
			Spec: instancetype.VirtualMachineInstancetypeSpec{
				CPU:          instancetype.CPUInstancetype{Guest: 1},
				Memory:       instancetype.MemoryInstancetype{Guest: resource.MustParse("1Gi")},
				NodeSelector: map[string]string{"a": "b"},
			},
		},
		&instancetype.VirtualMachineClusterPreference{
			ObjectMeta: metav1.ObjectMeta{Name: "database"},
			Spec: instancetype.VirtualMachinePreferenceSpec{Requirements: &instancetype.PreferenceRequirements{
				CPU: &instancetype.CPUPreferenceRequirement{Guest: 2},
			}},
		},
	).Build()})
	const vm = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: guest, namespace: shop}
spec:
  runStrategy: Halted
  instancetype: {name: TYPE, kind: virtualmachineinstancetype}
  PREFERENCE
  template: {spec: {domain: {devices: {}}, nodeSelector: {c: d}}}
`
	for _, tt := range []struct{ of, preference, want string }{
		{"missing", "preference: {name: database}", ""},
		{"small", "", "VM field(s) spec.template.spec.nodeSelector conflicts with selected instance type"},
		{"small", "preference: {name: database}", "failure checking preference requirements: insufficient CPU resources of 1 vCPU"},
	} {
		text := strings.NewReplacer("TYPE", tt.of, "PREFERENCE", tt.preference).Replace(vm)
		answer := r.ask(t, admission.PathValidate, manifest(t, text, "v1"), nil)
		if tt.want == "" {
			if !answer.Allowed {
				t.Errorf("%+v: %v", tt, answer.Result)
			}
			continue
		}
		if got := refusal(t, answer); !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
