package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller"
)

// TestStubImage creates VMs without a volume: each pod has an image, by default the
// controller's own, even if a sidecar precedes the controller in its pod.
func TestStubImage(t *testing.T) {
	const own, chosen = "registry.example.com/nodevirt-controller:2", "registry.example.com/any:1"
	for name, tt := range map[string]struct {
		options controller.Options
		want    string
	}{
		"own":    {controller.Options{Pod: "controller-of-stub-test", Namespace: namespace}, own},
		"chosen": {controller.Options{Pod: "controller-of-stub-test", Namespace: namespace, StubImage: chosen}, chosen},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stop()
			self := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tt.options.Pod, Namespace: namespace}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "mesh", Image: "registry.example.com/mesh:1"}, {Name: "controller", Image: own}},
			}}
			if err := w.Create(t.Context(), self); err != nil {
				t.Fatal(err)
			}
			defer func() {
				now := int64(0)
				if err := w.Delete(t.Context(), self, &client.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
					t.Error(err)
				}
			}()
			w.startWith(tt.options)
			vmi := newVMI("stub-" + name)
			vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = nil, nil
			if err := w.Create(t.Context(), vmi); err != nil {
				t.Fatal(err)
			}
			if got := w.podOf(vmi).Spec.Containers[0].Image; got != tt.want {
				t.Errorf("image %s, want %s", got, tt.want)
			}
		})
	}
}
