package admission_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestMigrations: a migration needs an instance that runs, can be migrated and is not
// being migrated. It has the label by which clients find it, and does not change.
func TestMigrations(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kubevirt.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	vmi := func(name string, phase kubevirt.VirtualMachineInstancePhase, migratable corev1.ConditionStatus) client.Object {
		return &kubevirt.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
			Status: kubevirt.VirtualMachineInstanceStatus{Phase: phase, Conditions: []kubevirt.VirtualMachineInstanceCondition{{
				Type: kubevirt.VirtualMachineInstanceIsMigratable, Status: migratable, Reason: "DisksNotLiveMigratable", Message: "a disk",
			}}},
		}
	}
	migration := func(of string, phase kubevirt.VirtualMachineInstanceMigrationPhase) client.Object {
		return &kubevirt.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Name: of + string(phase), Namespace: "shop", UID: "some-uid"},
			Spec:       kubevirt.VirtualMachineInstanceMigrationSpec{VMIName: of},
			Status:     kubevirt.VirtualMachineInstanceMigrationStatus{Phase: phase},
		}
	}
	r := newRigIn(t, admission.Webhooks{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		vmi("free", kubevirt.Running, corev1.ConditionTrue), vmi("busy", kubevirt.Running, corev1.ConditionTrue),
		vmi("fixed", kubevirt.Running, corev1.ConditionFalse), vmi("over", kubevirt.Succeeded, corev1.ConditionTrue),
		vmi("early", kubevirt.Scheduled, corev1.ConditionTrue),
		migration("free", kubevirt.MigrationSucceeded), migration("busy", kubevirt.MigrationRunning),
	).Build()})
	const text = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceMigration
metadata: {name: move, namespace: shop}
spec: {vmiName: VMI}
`
	for of, want := range map[string]string{
		"free":  "",
		"busy":  "spec.vmiName: in-flight migration detected. Active migration job (some-uid) is currently already in progress for VMI busy.",
		"fixed": "spec.vmiName: Cannot migrate VMI, Reason: DisksNotLiveMigratable, Message: a disk",
		"over":  "spec.vmiName: Cannot migrate VMI in finalized state.",
		"early": "", // it waits for the guest
		"none":  `spec.vmiName: the VMI "shop/none" does not exist`,
	} {
		object := manifest(t, strings.Replace(text, "VMI}", of+"}", 1), "")
		answer := r.ask(t, admission.PathValidate, object, nil)
		if answer.Allowed != (want == "") || !answer.Allowed && answer.Result.Message != want {
			t.Errorf("%s: %+v; want %q", of, answer.Result, want)
		}
	}
	object := r.defaulted(t, manifest(t, strings.Replace(text, "VMI}", "free}", 1), ""), nil)
	if s := string(object); !strings.Contains(s, `"labels":{"kubevirt.io/vmi-name":"free"}`) ||
		!strings.Contains(s, `"finalizers":["kubevirt.io/migrationJobFinalize"]`) {
		t.Errorf("made %s", s)
	}
	answer := r.ask(t, admission.PathValidate, manifest(t, strings.Replace(text, "VMI}", "busy}", 1), ""), object)
	if answer.Allowed || answer.Result.Message != "spec: update of Migration object's spec is restricted" {
		t.Errorf("another VMI: %+v", answer.Result)
	}
}
