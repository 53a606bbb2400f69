package admission_test

import (
	"encoding/json"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestInferred: a VM is stored with the type that its PVC names, without the memory that it would have had otherwise,
// and without the preference that the PVC does not name.
func TestInferred(t *testing.T) {
	r := newRigIn(t, admission.Webhooks{Live: fake.NewFakeClient(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "debian", Namespace: "shop", Labels: map[string]string{"instancetype.kubevirt.io/default-instancetype": "small"},
	}})})
	const vm = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: guest, namespace: shop}
spec:
  runStrategy: Halted
  instancetype: {inferFromVolume: root, inferFromVolumeFailurePolicy: Ignore}
  preference: {inferFromVolume: root, inferFromVolumeFailurePolicy: Ignore}
  template: {spec: {domain: {memory: {guest: 512Mi}, devices: {}}, volumes: [{name: root, persistentVolumeClaim: {claimName: debian}}]}}
`
	object := r.defaulted(t, manifest(t, vm, ""), nil)
	var got kubevirt.VirtualMachine
	assert.NilError(t, json.Unmarshal(object, &got))
	assert.DeepEqual(t, got.Spec.Instancetype, &kubevirt.InstancetypeMatcher{Name: "small"})
	assert.Assert(t, got.Spec.Preference == nil)
	assert.Assert(t, got.Spec.Template.Spec.Domain.Memory == nil)
	answer := r.ask(t, admission.PathValidate, object, nil)
	assert.Assert(t, answer.Allowed, "%v", answer.Result)
}
