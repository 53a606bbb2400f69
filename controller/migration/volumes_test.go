package migration

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// movesTo has an instance's disk "data" copied from one PVC to another.
func (g *rig) movesTo(vmi *instance, claim string) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, vmi, func(vmi *instance) {
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, kubevirt.Disk{Name: "data", DiskDevice: kubevirt.DiskDevice{Disk: new(kubevirt.DiskTarget)}})
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "data", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "old"}}})
		vmi.Status.MigratedVolumes = []kubevirt.StorageMigratedVolumeInfo{{
			VolumeName: "data", SourcePVCInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: "old"},
			DestinationPVCInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: claim},
		}}
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceCondition{
			Type: kubevirt.VirtualMachineInstanceVolumesChange, Status: corev1.ConditionTrue,
		})
	})
	g.addPVC("old")
}

// addPVC adds a PVC of a name.
func (g *rig) addPVC(name string) {
	g.t.Helper()
	g.Add(g.t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}})
}

// TestVolumes: an instance whose disks should move gets one migration, which waits for the PVC, and whose target has it.
func TestVolumes(t *testing.T) {
	g := newRig(t)
	vmi := g.running()
	e := &Evacuations{Client: g.Cached(), Events: g.Recorder, Now: func() time.Time { return g.now }}
	evacuate := func(want int) {
		t.Helper()
		if _, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(vmi)}); err != nil {
			t.Fatal(err)
		}
		assert.Equal(t, len(g.migrations()), want)
	}
	evacuate(0)
	g.movesTo(vmi, "new")
	evacuate(1)
	evacuate(1)
	assert.Equal(t, g.migrations()[0].Labels[kubevirt.VolumesUpdateMigration], name)
	if wait := g.reconcile().RequeueAfter; wait != lookForPVC || g.migration().Status.Phase != kubevirt.MigrationPending {
		t.Errorf("it looks again after %s: %+v", wait, g.migration().Status)
	}
	g.addPVC("new")
	g.reconcile()
	target := g.target()
	assert.Equal(t, target.Annotations[vmspec.AnnotationCopiedVolumes], "data")
	assert.DeepEqual(t, pod.Copied(target), map[string]string{"data": ""})
	assert.Assert(t, pod.IsAtDestinations(g.vmi(), target) && !pod.IsAtDestinations(g.vmi(), g.source()))
	g.boot(target, "node2", "10.0.0.2")
	g.reconcile()
	assert.DeepEqual(t, g.nodes.departed.Copied, []string{"data"})
	assert.Equal(t, g.nodes.sent.Timeout, time.Duration(0)) // the disk's size is not known
	assert.Equal(t, g.vmi().Status.MigrationMethod, kubevirt.BlockMigration)
	g.nodes.take()
	assert.Equal(t, g.settle().Status.Phase, kubevirt.MigrationSucceeded)
	evacuate(1) // the guest has the PVC
}

// TestUsedPVC: a migration does not delete what is in a PVC that another VM uses, whatever its access mode is.
func TestUsedPVC(t *testing.T) {
	g := newRig(t)
	vmi := g.running()
	g.addPVC("new")
	g.movesTo(vmi, "new")
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "virt-launcher-other", Labels: map[string]string{kubevirt.AppLabel: pod.LabelValue},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(
			&instance{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other"}}, kubevirt.VirtualMachineInstanceGroupVersionKind)},
	}}
	other.Spec.NodeName, other.Status.Phase = "node1", corev1.PodRunning
	other.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "new"}}}}
	g.Add(t, other)
	g.migrate()
	g.reconcile()
	m := g.migration()
	if m.Status.Phase != kubevirt.MigrationFailed || !strings.Contains(m.Status.MigrationState.FailureReason, "PVC default/new is in use by instance other") {
		t.Errorf("%+v", m.Status)
	}
}

// TestPluggedVolumesThatMove: the target's node mounts the PVC to which a disk is copied that the guest has got since it runs.
func TestPluggedVolumesThatMove(t *testing.T) {
	g := newRig(t)
	g.plugged()
	g.addPVC("new")
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *instance) {
		vmi.Status.MigratedVolumes = []kubevirt.StorageMigratedVolumeInfo{{
			VolumeName: "data", SourcePVCInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: "claim"},
			DestinationPVCInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: "new"},
		}}
	})
	g.migrate()
	g.reconcile()
	target := g.target()
	assert.Equal(t, target.Annotations[vmspec.AnnotationCopiedVolumes], "data=new")
	assert.Assert(t, pod.IsAtDestinations(g.vmi(), target) && !pod.IsAtDestinations(g.vmi(), g.source()))
	g.scheduled()
	g.reconcile()
	assert.Equal(t, pod.Held(g.holder(target)).PVC, "new")
	g.hold(g.holder(target), "node2")
	g.reconcile()
	assert.DeepEqual(t, g.nodes.departed.Copied, []string{"data"})
	assert.DeepEqual(t, g.nodes.received.Copied, []string{"data"})
	assert.DeepEqual(t, g.nodes.received.Volumes, map[string]string{"data": holdingContainer})
	g.nodes.take()
	assert.Equal(t, g.settle().Status.Phase, kubevirt.MigrationSucceeded)
}
