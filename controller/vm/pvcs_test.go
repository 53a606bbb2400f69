package vm

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// onPVC gives a VM a volume that is a PVC.
func onPVC(vm *kubevirt.VirtualMachine) {
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
		PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		},
	}}}
}

// TestPVCStatus: a VM shows what its PVC keeps it waiting for.
func TestPVCStatus(t *testing.T) {
	g := newRig(t)
	g.add(kubevirt.RunStrategyAlways, onPVC)
	g.reconcile()
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	waiting := func(reason string, scheduled corev1.ConditionStatus) {
		fakecluster.Change(t, g.Cluster, vmi, func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Status.Phase = kubevirt.Pending
			vmi.Status.Conditions = []kubevirt.VirtualMachineInstanceCondition{
				{Type: "PodScheduled", Status: scheduled, Reason: "Unschedulable"},
			}
			if reason != "" {
				vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceCondition{
					Type: kubevirt.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse, Reason: reason,
				})
			}
		})
	}
	expect := func(want kubevirt.VirtualMachinePrintableStatus) {
		t.Helper()
		g.reconcile()
		if got := g.vm().Status.PrintableStatus; got != want {
			t.Errorf("status %s, want %s", got, want)
		}
	}
	waiting("FailedPvcNotFound", corev1.ConditionFalse)
	expect(kubevirt.VirtualMachineStatusPvcNotFound)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
	g.Add(t, pvc)
	waiting("PVCDeleted", corev1.ConditionFalse)
	expect(kubevirt.VirtualMachineStatusUnschedulable)
	waiting("", corev1.ConditionTrue)
	expect(kubevirt.VirtualMachineStatusWaitingForVolumeBinding)
	for _, reason := range []string{"FailedCreate", "InvalidImageName", "ErrImagePull", "CreateFailed", "FailedMount", "CreateContainerConfigError"} {
		waiting(reason, corev1.ConditionTrue)
		expect(kubevirt.VirtualMachinePrintableStatus(reason))
	}
	waiting("CreateUnfinished", corev1.ConditionTrue)
	expect(kubevirt.VirtualMachineStatusProvisioning)
	waiting("", corev1.ConditionTrue)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) { pvc.Status.Phase = corev1.ClaimBound })
	expect(kubevirt.VirtualMachineStatusStarting)
	if got := index.Requests(t.Context(), g.r.client, new(kubevirt.VirtualMachineList), web.Namespace, index.PVC, pvc.Name); len(got) != 1 {
		t.Errorf("VMs of the PVC: %v", got)
	}
}

// TestDataVolumesReady: a VM says that its DataVolumes are not filled, and once it runs that they are.
func TestDataVolumesReady(t *testing.T) {
	g := newRig(t)
	g.add(kubevirt.RunStrategyAlways, onPVC)
	g.reconcile()
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	for _, step := range []struct {
		phase kubevirt.VirtualMachineInstancePhase
		ready corev1.ConditionStatus
		want  corev1.ConditionStatus
	}{
		{kubevirt.Pending, corev1.ConditionFalse, corev1.ConditionFalse},
		{kubevirt.Scheduling, corev1.ConditionTrue, ""}, // no write for it
		{kubevirt.Running, corev1.ConditionTrue, corev1.ConditionTrue},
	} {
		fakecluster.Change(t, g.Cluster, vmi, func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Status.Phase = step.phase
			vmi.Status.Conditions = []kubevirt.VirtualMachineInstanceCondition{{Type: kubevirt.VirtualMachineInstanceDataVolumesReady, Status: step.ready}}
		})
		g.reconcile()
		var got corev1.ConditionStatus
		for _, c := range g.vm().Status.Conditions {
			if string(c.Type) == string(kubevirt.VirtualMachineInstanceDataVolumesReady) {
				got = c.Status
			}
		}
		if got != step.want {
			t.Errorf("%s: %q, want %q", step.phase, got, step.want)
		}
	}
}
