package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/installation"
)

// TestKubeVirt: the controller makes the object that configures it, and reads it while it runs.
func TestKubeVirt(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.startWith(controller.Options{Namespace: namespace, Version: "v0.9.0"})
	deployed := func(k *kubevirt.KubeVirt) bool {
		return k.Status.Phase == kubevirt.KubeVirtPhaseDeployed && k.Status.ObservedGeneration != nil && *k.Status.ObservedGeneration == k.Generation
	}
	made := until(w, new(kubevirt.KubeVirt), config.Name, "deployed", deployed)
	if made.Status.ObservedKubeVirtVersion != config.APIVersion || made.Annotations[installation.AnnotationVersion] != "v0.9.0" {
		t.Errorf("versions: %+v, %v", made.Status, made.Annotations)
	}
	requests := func(name, cpu string) {
		t.Helper()
		p := w.podOf(w.vmi(name))
		if got := p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; got.String() != cpu {
			t.Errorf("the pod of %s requests %s of a CPU, want %s", name, got.String(), cpu)
		}
	}
	requests("by-default", "100m")
	w.change(made, false, func() {
		made.Spec.Configuration.DeveloperConfiguration = &kubevirt.DeveloperConfiguration{CPUAllocationRatio: 4}
	})
	until(w, new(kubevirt.KubeVirt), config.Name, "deployed again", func(k *kubevirt.KubeVirt) bool { return k.Generation > 1 && deployed(k) })
	requests("configured", "250m")

	if err := w.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	until(w, new(kubevirt.KubeVirt), config.Name, "made again", func(k *kubevirt.KubeVirt) bool { return k.UID != made.UID && deployed(k) })
	requests("reset", "100m")
	w.stop() // else it comes back
	again := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: config.Name}}
	if err := client.IgnoreNotFound(w.Delete(t.Context(), again)); err != nil {
		t.Fatal(err)
	}
}
