package admission

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// change is what a user changes of an object, and what the refusal says; "" for a change that is admitted.
type change struct {
	apply   func(client.Object)
	refusal string
}

// changes are those of metadata that no webhook sees.
func changes() map[string]change {
	labels := func(n int) func(client.Object) {
		return func(o client.Object) {
			all := map[string]string{"kubevirt.io": o.GetLabels()["kubevirt.io"]}
			for i := range n - 1 {
				all[fmt.Sprint("example.com/", i)] = "x"
			}
			o.SetLabels(all)
		}
	}
	finalizers := func(n int) func(client.Object) {
		return func(o client.Object) {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprint("example.com/", i))
			}
			o.SetFinalizers(all)
		}
	}
	owners := func(n, size int) func(client.Object) {
		return func(o client.Object) {
			var all []metav1.OwnerReference
			for i := range n {
				all = append(all, metav1.OwnerReference{
					APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("x", size), UID: types.UID(fmt.Sprint("uid-", i)),
				})
			}
			o.SetOwnerReferences(all)
		}
	}
	return map[string]change{
		"as many labels as allowed":     {labels(bounds.Labels), ""},
		"one label more":                {labels(bounds.Labels + 1), "metadata.labels: more than 64"},
		"very many labels":              {labels(20000), "metadata.labels: more than 64"},
		"as many finalizers as allowed": {finalizers(bounds.Finalizers), ""},
		"one finalizer more":            {finalizers(bounds.Finalizers + 1), "metadata.finalizers: more than 32"},
		"as many owners as allowed":     {owners(bounds.Owners, 10), ""},
		"one owner more":                {owners(bounds.Owners+1, 10), "metadata.ownerReferences: more than 32"},
		"a long owner":                  {owners(1, bounds.Owner), "metadata.ownerReferences: an owner has more than 1,024 characters"},
	}
}

// TestMetadataIsBounded: labels, finalizers and owners of what the controller keeps in memory are bounded by the API server,
// since no webhook sees changes of them, and so are volumes and containers of pods with VMs' labels.
func TestMetadataIsBounded(t *testing.T) {
	alice := userClient(t, "alice")
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "metadata", Namespace: "default"}}
	pvc.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	create(t, alice, pvc)
	launcher, err := newPod(t, alice, "metadata", nil)
	assert.NilError(t, err)
	machine := vmOf("default", "metadata")
	create(t, alice, machine)
	for _, o := range []client.Object{pvc, launcher, machine} {
		for name, c := range changes() {
			next := o.DeepCopyObject().(client.Object)
			c.apply(next)
			err := alice.Patch(t.Context(), next, client.MergeFrom(o), client.DryRunAll)
			if c.refusal == "" && err != nil || c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal)) {
				t.Errorf("%T gets %s: %.400v", o, name, err)
			}
		}
	}
	large := podWith(bounds.Volumes+1, 1)
	if err := alice.Create(t.Context(), large, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "spec.volumes: a pod with the labels of VMs' pods has more than 256") {
		t.Errorf("volumes: %.400v", err)
	}
	if err := alice.Create(t.Context(), podWith(1, bounds.Containers+1), client.DryRunAll); err == nil ||
		!strings.Contains(err.Error(), "spec.containers: a pod with the labels of VMs' pods has more than 64") {
		t.Errorf("containers: %.400v", err)
	}
	large.Labels = nil
	if err := alice.Create(t.Context(), large, client.DryRunAll); err != nil {
		t.Errorf("a pod that the controller does not keep: %v", err)
	}
	if err := alice.Create(t.Context(), podWith(bounds.Volumes, bounds.Containers), client.DryRunAll); err != nil {
		t.Errorf("as many as allowed: %v", err)
	}
}

// podWith returns a pod with VMs' labels and a number of volumes and containers.
func podWith(volumes, containers int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: "default", Labels: map[string]string{"kubevirt.io": "virt-launcher"}}}
	for i := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("v", i)},
		}})
	}
	for i := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "registry.example.com/guest"})
	}
	return p
}

// TestNumberOfObjects: the API server says how many objects of a kind a namespace has, by which a review divides what they may
// have of the controller's memory.
func TestNumberOfObjects(t *testing.T) {
	alice := userClient(t, "alice")
	for i := range 3 {
		create(t, alice, vmOf("default", fmt.Sprint("number-", i)))
	}
	large := vmOf("default", "number-large")
	large.SetAnnotations(map[string]string{"example.com/notes": strings.Repeat("x", 200<<10)})
	create(t, alice, large)
	list := new(metav1.PartialObjectMetadataList)
	list.SetGroupVersionKind(large.GroupVersionKind().GroupVersion().WithKind("VirtualMachineList"))
	assert.NilError(t, alice.List(t.Context(), list, client.InNamespace("default"), client.Limit(1)))
	assert.Assert(t, list.RemainingItemCount != nil && int(*list.RemainingItemCount) >= 3, "%+v", list.ListMeta)
}

// vmOf returns a halted VirtualMachine.
func vmOf(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{"runStrategy": "Halted", "template": map[string]any{
			"spec": map[string]any{"domain": map[string]any{"devices": map[string]any{}, "memory": map[string]any{"guest": "64Mi"}}},
		}},
	}}
}
