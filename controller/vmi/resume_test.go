package vmi

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestResume: the pod of a guest that goes on from a snapshot mounts its memory, once no later
// instance of the VirtualMachine goes on from it.
func TestResume(t *testing.T) {
	g := newRig(t)
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: web.Namespace, Name: web.Name, Annotations: map[string]string{pod.AnnotationResume: "memory"},
	}}
	g.Add(t, vm)
	g.add(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{pod.AnnotationResume: "memory"}
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	})
	if wait := g.reconcile().RequeueAfter; wait == 0 || len(g.pods()) > 0 {
		t.Errorf("%d pods; looked at again after %s", len(g.pods()), wait)
	}
	fakecluster.Change(t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) { vm.Annotations = nil })
	g.reconcile()
	p := g.onePod()
	mounts := p.Spec.Containers[0].VolumeMounts
	at := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == vmspec.CheckpointPath && m.ReadOnly })
	if at < 0 || !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == mounts[at].Name && v.PersistentVolumeClaim.ClaimName == "memory"
	}) || p.Annotations[pod.AnnotationResume] != "" {
		t.Errorf("mounts %v, volumes %v, annotations %v", mounts, p.Spec.Volumes, p.Annotations)
	}
}
