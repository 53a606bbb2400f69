package datavolume

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// TestClient: in a cluster with CDI, DataVolumes are created once, and read. The
// controller's tests have a cluster without CDI.
func TestClient(t *testing.T) {
	resource := version().WithResource("datavolumes")
	c := &Client{dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "DataVolumeList"})}
	s, err := c.Get(t.Context(), "default", "data")
	if err != nil || s != (State{Served: true}) {
		t.Errorf("%+v, %v", s, err)
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "data", Labels: map[string]string{"a": "b"}}
	for range 2 {
		if _, err := c.Create(t.Context(), meta, cdi.DataVolumeSpec{Source: &cdi.DataVolumeSource{Blank: new(cdi.DataVolumeBlankImage)}}, "default"); err != nil {
			t.Fatal(err)
		}
	}
	object, err := c.in("default").Get(t.Context(), "data", metav1.GetOptions{})
	if err != nil || object.GetKind() != "DataVolume" || object.GetLabels()["a"] != "b" {
		t.Fatalf("%+v, %v", object, err)
	}
	if err := unstructured.SetNestedStringMap(object.Object, map[string]string{"phase": "ImportInProgress", "progress": "4%"}, "status"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.in("default").Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err = c.Get(t.Context(), "default", "data")
	if err != nil || s != (State{Served: true, Found: true, Phase: "ImportInProgress", Progress: "4%"}) || s.Filled() || s.Failed() {
		t.Errorf("%+v, %v", s, err)
	}
	if !(State{Phase: "Succeeded"}).Filled() || (State{Phase: "PendingPopulation"}).Filled() || !(State{Phase: "PendingPopulation"}).Usable() ||
		!(State{Phase: "Failed"}).Failed() {
		t.Error("phases")
	}
}

// TestChangeOwners: owners of a DataVolume change, and a DataVolume that is gone has none.
func TestChangeOwners(t *testing.T) {
	resource := version().WithResource("datavolumes")
	c := &Client{dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "DataVolumeList"})}
	owner := metav1.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: "web-0", UID: "1"}
	set := func(all []metav1.OwnerReference) func([]metav1.OwnerReference) []metav1.OwnerReference {
		return func([]metav1.OwnerReference) []metav1.OwnerReference { return all }
	}
	if err := c.ChangeOwners(t.Context(), "default", "data", set(nil)); err != nil {
		t.Errorf("of none: %v", err)
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "data", OwnerReferences: []metav1.OwnerReference{owner}}
	if _, err := c.Create(t.Context(), meta, cdi.DataVolumeSpec{}, "default"); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]metav1.OwnerReference{nil, nil, {owner}} {
		if err := c.ChangeOwners(t.Context(), "default", "data", set(want)); err != nil {
			t.Fatal(err)
		}
		object, err := c.in("default").Get(t.Context(), "data", metav1.GetOptions{})
		if err != nil || len(object.GetOwnerReferences()) != len(want) {
			t.Errorf("%+v, %v; want %+v", object, err, want)
		}
	}
}
