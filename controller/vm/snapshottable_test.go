package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
)

// snapshots returns the VM's status of volumes: enabled, or the reason why not.
func (g *rig) snapshots() string {
	g.t.Helper()
	var all []string
	for _, s := range g.vm().Status.VolumeSnapshotStatuses {
		if s.Enabled {
			s.Reason = "enabled"
		}
		all = append(all, fmt.Sprintf("%s: %s", s.Name, s.Reason))
	}
	return strings.Join(all, "\n")
}

// TestVolumeSnapshotStatuses: the status says which volumes snapshots have. The cluster's classes
// are kept for a minute, and looked for again while one is missing.
func TestVolumeSnapshotStatuses(t *testing.T) {
	g := newRig(t)
	g.add(kubevirt.RunStrategyHalted, onPVC, func(vm *kubevirt.VirtualMachine) {
		image := kubevirt.Volume{Name: "image"}
		image.ContainerDisk = &kubevirt.ContainerDiskSource{Image: "disk"}
		made, temporary := kubevirt.Volume{Name: "made"}, kubevirt.Volume{Name: "temporary"}
		made.DataVolume = &kubevirt.DataVolumeSource{Name: "dv"}
		temporary.Ephemeral = &kubevirt.EphemeralVolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
		vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, image, made, temporary)
	})
	const others = "\nimage: Snapshot is not supported for this volumeSource type [image]\n" +
		"made: PVC not found\n" +
		"temporary: Snapshot is not supported for this volumeSource type [temporary]"
	expect := func(root string, again time.Duration) {
		t.Helper()
		result := g.reconcile()
		if got := g.snapshots(); got != "root: "+root+others || result.RequeueAfter != again {
			t.Errorf("again after %s:\n%s", result.RequeueAfter, got)
		}
	}
	expect("PVC not found", 0)
	class := "csi"
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
	pvc.Spec.StorageClassName = &class
	g.Add(t, pvc)
	const missing = "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [csi] [root]"
	expect(missing, lookForClass)
	g.Add(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "driver"})
	g.snapshotClasses = []volumesnapshot.Class{{Name: "other", Driver: "other"}}
	expect(missing, lookForClass)
	g.now = g.now.Add(classAge + time.Second)
	expect(missing, lookForClass)
	g.snapshotClasses = append(g.snapshotClasses, volumesnapshot.Class{Name: "a", Driver: "driver"}, volumesnapshot.Class{Name: "b", Driver: "driver"})
	g.now = g.now.Add(classAge + time.Second)
	expect("2 VolumeSnapshotClasses match StorageClass csi: mark one as default", lookForClass)
	g.snapshotClasses[2].Default = true
	g.now = g.now.Add(classAge + time.Second)
	expect("enabled", 0)
	expect("enabled", 0)
	if g.looks != 3 {
		t.Errorf("classes were listed %d times", g.looks)
	}
	g.expect("patch VirtualMachine, patch VirtualMachine" + strings.Repeat(", patch status of VirtualMachine", 4))
}
