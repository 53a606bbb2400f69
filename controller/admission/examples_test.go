package admission_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	instancetype "kubevirt.io/api/instancetype/v1beta1"
	snapshot "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestExamples: the webhooks take the examples.
func TestExamples(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubevirt.AddToScheme, instancetype.AddToScheme, snapshot.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	movable := &kubevirt.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "movable"},
		Status: kubevirt.VirtualMachineInstanceStatus{Phase: kubevirt.Running, Conditions: []kubevirt.VirtualMachineInstanceCondition{{
			Type: kubevirt.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
		}}},
	}
	r := newRigIn(t, admission.Webhooks{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(movable).Build()})
	var paths []string
	for _, pattern := range []string{"../../examples/*.yaml", "../../examples/*/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	seen := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for one := range strings.SplitSeq(string(text), "\n---\n") {
			if !strings.Contains(one, "kubevirt.io/") || strings.Contains(one, "kind: Pod\n") {
				continue
			}
			seen++
			if answer := r.ask(t, admission.PathValidate, manifest(t, one, ""), nil); !answer.Allowed {
				t.Errorf("%s: %s", path, answer.Result.Message)
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d objects of nodevirt's kinds in %v", seen, paths)
	}
}
