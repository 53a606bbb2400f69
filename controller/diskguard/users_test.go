package diskguard_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/diskguard"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestTooManyUsers: of more objects than the controller reads, one may use a PVC, which must not be deleted then.
func TestTooManyUsers(t *testing.T) {
	c := fakecluster.New(t, fakecluster.Options{Types: []func(*runtime.Scheme) error{corev1.AddToScheme, kubevirt.AddToScheme, exportapi.AddToScheme}})
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "default"}}
	if who, err := diskguard.OtherUser(t.Context(), c.Client, pvc, diskguard.Owner{}); who != "" || err != nil {
		t.Errorf("nothing uses it: %q, %v", who, err)
	}
	for kind, list := range map[string]client.ObjectList{
		"Pod": new(corev1.PodList), "VirtualMachine": new(kubevirt.VirtualMachineList), "VirtualMachineInstance": new(kubevirt.VirtualMachineInstanceList),
		"PersistentVolumeClaim": new(corev1.PersistentVolumeClaimList), "VirtualMachineExport": new(exportapi.VirtualMachineExportList),
	} {
		who, err := diskguard.OtherUser(t.Context(), fakecluster.Endless(c.Client, list), pvc, diskguard.Owner{})
		if want := "perhaps an object of kind " + kind + " (too many objects in the namespace: more than 8192"; err != nil || !strings.HasPrefix(who, want) {
			t.Errorf("%q, %v, want %q", who, err, want)
		}
	}
}

// TestEndedPods: very many pods that have ended hide neither that nothing uses a PVC, nor a pod that does.
func TestEndedPods(t *testing.T) {
	c := fakecluster.New(t, fakecluster.Options{Types: []func(*runtime.Scheme) error{corev1.AddToScheme, kubevirt.AddToScheme, exportapi.AddToScheme}})
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "default"}}
	user := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "writer", Namespace: "default"}}
	user.Spec.Volumes = []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
	}}}
	c.Add(t, user)
	for phase, want := range map[corev1.PodPhase]string{
		"": "pod writer", corev1.PodPending: "pod writer", corev1.PodRunning: "pod writer", corev1.PodUnknown: "pod writer",
		corev1.PodSucceeded: "", corev1.PodFailed: "",
	} {
		fakecluster.Change(t, c, user, func(p *corev1.Pod) { p.Status.Phase = phase })
		if who, err := diskguard.OtherUser(t.Context(), fakecluster.Ended(c.Client), pvc, diskguard.Owner{}); who != want || err != nil {
			t.Errorf("phase %q: %q, %v, want %q", phase, who, err, want)
		}
	}
}
