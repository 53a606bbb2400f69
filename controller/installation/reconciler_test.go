package installation_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/installation"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

var key = types.NamespacedName{Namespace: "nodevirt", Name: config.Name}

// TestReconciler: the controller makes the object, says that it is deployed, and makes a deleted one again.
func TestReconciler(t *testing.T) {
	cluster := fakecluster.New(t, fakecluster.Options{
		Types: []func(*runtime.Scheme) error{kubevirt.AddToScheme}, Status: []client.Object{new(kubevirt.KubeVirt)},
	})
	r := &installation.Reconciler{Client: cluster.Cached(), Key: key, Version: "v0.9.0", Now: time.Now}
	reconcile := func(key types.NamespacedName) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	read := func() *kubevirt.KubeVirt {
		t.Helper()
		object := new(kubevirt.KubeVirt)
		if err := cluster.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	for range 2 {
		reconcile(key)
		reconcile(key)
		object := read()
		s := object.Status
		if s.Phase != kubevirt.KubeVirtPhaseDeployed || s.ObservedKubeVirtVersion != config.APIVersion || s.TargetKubeVirtVersion != config.APIVersion ||
			s.OperatorVersion != config.APIVersion || s.DefaultArchitecture != "amd64" || *s.ObservedGeneration != object.Generation {
			t.Errorf("status: %+v", s)
		}
		if got := object.Annotations[installation.AnnotationVersion]; got != "v0.9.0" {
			t.Errorf("version %q", got)
		}
		have := map[kubevirt.KubeVirtConditionType]corev1.ConditionStatus{}
		for _, c := range s.Conditions {
			have[c.Type] = c.Status
		}
		if have["Available"] != "True" || have["Created"] != "True" || have["Progressing"] != "False" || have["Degraded"] != "False" {
			t.Errorf("conditions: %+v", s.Conditions)
		}
		cluster.Writes()
		reconcile(key)
		if w := cluster.Writes(); len(w) > 0 {
			t.Errorf("wrote again: %v", w)
		}
		if err := cluster.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherObject: one of another name stays as it is.
func TestOtherObject(t *testing.T) {
	cluster := fakecluster.New(t, fakecluster.Options{
		Types: []func(*runtime.Scheme) error{kubevirt.AddToScheme}, Status: []client.Object{new(kubevirt.KubeVirt)},
	})
	other := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"}}
	cluster.Add(t, other)
	r := &installation.Reconciler{Client: cluster.Cached(), Key: key, Version: "v0.9.0", Now: time.Now}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(other)}); err != nil {
		t.Fatal(err)
	}
	if w := cluster.Writes(); len(w) > 0 {
		t.Errorf("writes: %v", w)
	}
}
