package volumesnapshot

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

// TestWatch: a watch reports VolumeSnapshots with a label: those that exist, and each change.
func TestWatch(t *testing.T) {
	snapshot := func(name string, labels map[string]string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"volumeSnapshotClassName": "fast"}}}
		o.SetGroupVersionKind(version().WithKind(Kind))
		o.SetNamespace("default")
		o.SetName(name)
		o.SetLabels(labels)
		return o
	}
	ours := snapshot("ours", map[string]string{"vm": "web"})
	c := &Client{fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		version().WithResource("volumesnapshots"): "VolumeSnapshotList",
	}, ours, snapshot("foreign", nil))}
	changed, ended := make(chan metav1.Object), make(chan error)
	go func() {
		ended <- c.Watch(t.Context(), "vm", func(o metav1.Object) {
			select {
			case changed <- o:
			case <-t.Context().Done():
			}
		})
	}()
	report := func(why string) {
		t.Helper()
		select {
		case o := <-changed:
			if o.GetName() != "ours" {
				t.Errorf("%s: reported %s", why, o.GetName())
			}
			if whole, _ := o.(*unstructured.Unstructured); whole == nil || whole.Object["spec"] != nil {
				t.Errorf("%s: the watch holds %v", why, o)
			}
		case err := <-ended:
			t.Fatalf("%s: the watch ended: %v", why, err)
		}
	}
	report("exists")
	ours.SetAnnotations(map[string]string{"a": "b"})
	if _, err := c.in("default").Update(t.Context(), ours, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	report("changed")
	if err := c.in("default").Delete(t.Context(), "ours", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	report("deleted")
}
