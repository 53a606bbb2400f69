package instancetype_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	groups "kubevirt.io/api/instancetype"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/instancetype"
)

// cdiObject is an object of CDI's in the namespace ns.
func cdiObject(kind, name string, labels map[string]string, spec map[string]any) client.Object {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: kind})
	o.SetNamespace("ns")
	o.SetName(name)
	o.SetLabels(labels)
	return o
}

func snapshot(namespace, name string, labels map[string]string) client.Object {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("snapshot.storage.k8s.io/v1")
	o.SetKind("VolumeSnapshot")
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(labels)
	return o
}

func pvc(namespace, name string, labels map[string]string) client.Object {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
}

func TestInfer(t *testing.T) {
	small := map[string]string{groups.DefaultInstancetypeLabel: "small", groups.DefaultInstancetypeKindLabel: "virtualmachineinstancetype"}
	large := map[string]string{groups.DefaultInstancetypeLabel: "large"}
	ofPVC := func(name string) map[string]any {
		return map[string]any{"source": map[string]any{"pvc": map[string]any{"namespace": "images", "name": name}}}
	}
	ofSnapshot := func(name string) map[string]any {
		return map[string]any{"source": map[string]any{"snapshot": map[string]any{"namespace": "images", "name": name}}}
	}
	live := fake.NewClientBuilder().WithObjects(
		pvc("ns", "labelled", small), pvc("ns", "plain", nil), pvc("images", "debian", large),
		cdiObject("DataVolume", "own", large, ofPVC("none")),
		cdiObject("DataVolume", "copy", nil, ofPVC("debian")),
		cdiObject("DataVolume", "stray", nil, ofPVC("none")),
		cdiObject("DataVolume", "blank", nil, map[string]any{"source": map[string]any{"blank": map[string]any{}}}),
		cdiObject("DataSource", "os", nil, ofPVC("debian")),
		cdiObject("DataVolume", "restored", nil, ofSnapshot("gold")),
		cdiObject("DataVolume", "unnamed", nil, ofSnapshot("none")),
		cdiObject("DataSource", "cron", nil, ofSnapshot("gold")),
		cdiObject("DataSource", "alias", nil, map[string]any{"source": map[string]any{"dataSource": map[string]any{"name": "cron", "namespace": "ns"}}}),
		cdiObject("DataSource", "round", nil, map[string]any{"source": map[string]any{"dataSource": map[string]any{"name": "round", "namespace": "ns"}}}),
		snapshot("images", "gold", large),
	).Build()
	const path = "spec.instancetype.inferFromVolume: Invalid value: \"root\": "
	for _, tt := range []struct {
		name   string
		volume string
		// template is what the DataVolume's template of the VM has beside its name.
		template, policy string
		want             instancetype.Inferred
		problem          string
	}{
		{name: "a PVC", volume: `persistentVolumeClaim: {claimName: labelled}`,
			want: instancetype.Inferred{Name: "small", Kind: "virtualmachineinstancetype"}},
		{name: "a PVC without the label", volume: `persistentVolumeClaim: {claimName: plain}`,
			problem: "PersistentVolumeClaim ns/plain has no label " + groups.DefaultInstancetypeLabel + "; add it, or use name"},
		{name: "ignored", volume: `persistentVolumeClaim: {claimName: plain}`, policy: "Ignore", want: instancetype.Inferred{Ignore: true}},
		{name: "no PVC", volume: `persistentVolumeClaim: {claimName: none}`, policy: "Ignore",
			problem: "PersistentVolumeClaim ns/none does not exist; create it first, or use name"},
		{name: "a DataVolume with the label", volume: `dataVolume: {name: own}`, want: instancetype.Inferred{Name: "large"}},
		{name: "a DataVolume of a PVC", volume: `dataVolume: {name: copy}`, want: instancetype.Inferred{Name: "large"}},
		{name: "a DataVolume that was deleted", volume: `dataVolume: {name: labelled}`, policy: "Reject",
			want: instancetype.Inferred{Name: "small", Kind: "virtualmachineinstancetype"}},
		{name: "another namespace's missing PVC", volume: `dataVolume: {name: stray}`,
			problem: "DataVolume ns/stray has no label " + groups.DefaultInstancetypeLabel},
		{name: "a blank DataVolume", volume: `dataVolume: {name: blank}`, problem: "DataVolume ns/blank has no label "},
		{name: "a template of a PVC", volume: `dataVolume: {name: new}`, template: `spec: {source: {pvc: {namespace: images, name: debian}}}`,
			want: instancetype.Inferred{Name: "large"}},
		{name: "a template of a DataSource", volume: `dataVolume: {name: new}`, template: `spec: {sourceRef: {kind: DataSource, name: os}}`,
			want: instancetype.Inferred{Name: "large"}},
		{name: "a DataVolume of a snapshot", volume: `dataVolume: {name: restored}`, want: instancetype.Inferred{Name: "large"}},
		{name: "another namespace's missing snapshot", volume: `dataVolume: {name: unnamed}`,
			problem: "DataVolume ns/unnamed has no label " + groups.DefaultInstancetypeLabel},
		{name: "a template of a snapshot", volume: `dataVolume: {name: new}`,
			template: `spec: {source: {snapshot: {namespace: images, name: gold}}}`, want: instancetype.Inferred{Name: "large"}},
		{name: "a DataSource of a snapshot", volume: `dataVolume: {name: new}`, template: `spec: {sourceRef: {kind: DataSource, name: cron}}`,
			want: instancetype.Inferred{Name: "large"}},
		{name: "a DataSource of a DataSource", volume: `dataVolume: {name: new}`, template: `spec: {sourceRef: {kind: DataSource, name: alias}}`,
			want: instancetype.Inferred{Name: "large"}},
		{name: "a DataSource of itself", volume: `dataVolume: {name: new}`, template: `spec: {sourceRef: {kind: DataSource, name: round}}`,
			problem: "DataSource ns/round has no label "},
		{name: "a template with the label", volume: `dataVolume: {name: new}`,
			template: `metadata: {name: new, labels: {` + groups.DefaultInstancetypeLabel + `: tiny}}`, want: instancetype.Inferred{Name: "tiny"}},
		{name: "a template without a source", volume: `dataVolume: {name: new}`, template: `spec: {source: {blank: {}}}`,
			problem: "the volume's template has no label "},
		{name: "a containerDisk", volume: `containerDisk: {image: x}`, problem: "the volume is neither a persistentVolumeClaim nor a dataVolume"},
		{name: "no volume", volume: `name: other`, policy: "Ignore", problem: "the template has no such volume"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}}
			volume := kubevirt.Volume{Name: "root"}
			assert.NilError(t, yaml.Unmarshal([]byte(tt.volume), &volume))
			vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{volume}}}
			if tt.template != "" {
				of := kubevirt.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: cdi.DataVolumeSpec{}}
				assert.NilError(t, yaml.Unmarshal([]byte(tt.template), &of))
				vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, of)
			}
			vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{InferFromVolume: "root"}
			if policy := kubevirt.InferFromVolumeFailurePolicy(tt.policy); policy != "" {
				vm.Spec.Instancetype.InferFromVolumeFailurePolicy = &policy
			}
			got, problems, err := instancetype.Infer(t.Context(), live, field.NewPath("spec"), vm)
			assert.NilError(t, err)
			if tt.problem != "" {
				assert.Assert(t, strings.HasPrefix(sentences(problems), path+tt.problem), "%s", sentences(problems))
				return
			}
			tt.want.Matcher = "instancetype"
			assert.DeepEqual(t, got, []instancetype.Inferred{tt.want})
		})
	}
}

func TestInferBesideAName(t *testing.T) {
	vm := &kubevirt.VirtualMachine{Spec: kubevirt.VirtualMachineSpec{
		Preference: &kubevirt.PreferenceMatcher{Name: "linux", InferFromVolume: "root"},
	}}
	_, problems, err := instancetype.Infer(t.Context(), fake.NewFakeClient(), field.NewPath("spec"), vm)
	assert.NilError(t, err)
	assert.Equal(t, sentences(problems), "spec.preference.inferFromVolume: name is given too; use one of them")
}
