package vmi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// netRig is a rig whose cluster has network disks.
func netRig(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.wire(func(o *Options) { o.NetworkDisks = true })
	return g
}

// addVolume creates an iSCSI volume of a name for a PVC.
func (g *rig) addVolume(name string, pvc *corev1.PersistentVolumeClaim, change ...func(*corev1.PersistentVolume)) {
	g.t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-11.com.example:disk", Lun: 1}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID}
	for _, c := range change {
		c(pv)
	}
	g.Add(g.t, pv)
	fakecluster.Change(g.t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.VolumeName, pvc.Status.Phase = name, corev1.ClaimBound
	})
}

// TestNetworkDisk: the pod lists the PVC and mounts it nowhere, and the annotation says
// where the disk is.
func TestNetworkDisk(t *testing.T) {
	g := netRig(t)
	pvc := g.addPVC(corev1.ReadWriteOnce)
	g.add(onPVC())
	g.waits("web", "PVCNotBound", "PVC default/data is not bound to a volume; the instance starts when it is.")
	g.addVolume("pv1", pvc)
	g.reconcile()
	p := g.onePod()
	if c := p.Spec.Containers[0]; len(p.Spec.Volumes) != 1 || len(c.VolumeMounts)+len(c.VolumeDevices) != 0 {
		t.Errorf("volumes %+v, mounts %+v", p.Spec.Volumes, c)
	}
	all, err := vmspec.ParseNetworkDisks(p.Annotations[vmspec.AnnotationNetworkDisks])
	if err != nil || all["root"].ISCSI == nil || all["root"].Volume != "pv1" {
		t.Errorf("%+v, %v", all, err)
	}
	if p.Annotations[vmspec.AnnotationBlankDisks] != "" {
		t.Error("the node is asked to create a disk")
	}
}

// TestNetworkDisksOff: without the switch the kubelet mounts the volume, as any other.
func TestNetworkDisksOff(t *testing.T) {
	g := newRig(t)
	g.addVolume("pv1", g.addPVC(corev1.ReadWriteOnce))
	g.add(onPVC())
	g.reconcile()
	if p := g.onePod(); len(p.Spec.Containers[0].VolumeMounts) != 1 || p.Annotations[vmspec.AnnotationNetworkDisks] != "" {
		t.Errorf("%+v", p)
	}
}

// TestVolumeOfAnotherPVC: a PVC may name any volume, and gets only its own.
func TestVolumeOfAnotherPVC(t *testing.T) {
	g := netRig(t)
	g.addVolume("pv1", g.addPVC(corev1.ReadWriteOnce), func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "another" })
	g.add(onPVC())
	g.waits("web", "PVCNotBound", "PVC default/data is not bound")
}

// TestPVCThatBindsLate: Kubernetes binds it when there is a pod.
func TestPVCThatBindsLate(t *testing.T) {
	g := netRig(t)
	class, late := "late", storagev1.VolumeBindingWaitForFirstConsumer
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) { pvc.Spec.StorageClassName = &class })
	g.add(onPVC())
	g.waits("web", "PVCNotBound", "is not bound") // there is no such class
	g.Add(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, VolumeBindingMode: &late})
	g.reconcile()
	if p := g.onePod(); len(p.Spec.Containers[0].VolumeMounts) != 1 {
		t.Errorf("%+v", p.Spec)
	}
}

// TestTwoVolumesOfATarget: one instance at a time uses a disk, whatever PVCs, volumes and
// namespaces say.
func TestTwoVolumesOfATarget(t *testing.T) {
	for name, tt := range map[string]struct {
		modes  []corev1.PersistentVolumeAccessMode
		shares bool
	}{
		"alone":       {[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOnce}, false},
		"one shares":  {[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce}, false},
		"both share":  {[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteMany}, true},
		"another LUN": {[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, "other LUN"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := netRig(t)
			g.addVolume("pv1", g.addPVC(tt.modes[0]))
			g.add(onPVC())
			g.reconcile()
			first := g.onePod()
			other := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "other"}}
			other.Spec.AccessModes = tt.modes[1:]
			g.Add(t, other)
			g.addVolume("pv2", other, func(pv *corev1.PersistentVolume) {
				pv.Spec.ISCSI.TargetPortal = "10.0.0.2" // the same target by its other address
				if tt.modes[1] == "other LUN" {
					pv.Spec.ISCSI.Lun = 2
				}
			})
			second := g.add(call("other"), onPVC())
			fakecluster.Change(t, g.Cluster, second, func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other"
			})
			if tt.shares {
				g.reconcileOf("other")
				if got := len(g.pods()); got != 2 {
					t.Errorf("%d pods", got)
				}
				return
			}
			g.waits("other", "PVCInUse", "is in use by instance default/web (pod "+first.Name+"), over another PVC")
			if got := g.reconcileOf("other"); got.RequeueAfter != pollDataVolume {
				t.Errorf("no event of another namespace's pod arrives: %+v", got)
			}
			g.bind(first, "node1")
			g.state(first, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
			g.reconcileOf("other")
			if got := len(g.pods()); got != 2 {
				t.Errorf("%d pods after the first has ended", got)
			}
		})
	}
}

// TestBadNetworkDisk: the instance says what is wrong with its volume.
func TestBadNetworkDisk(t *testing.T) {
	g := netRig(t)
	g.addVolume("pv1", g.addPVC(corev1.ReadWriteOnce), func(pv *corev1.PersistentVolume) {
		pv.Spec.ISCSI.SessionCHAPAuth, pv.Spec.ISCSI.SecretRef = true, &corev1.SecretReference{Name: "chap", Namespace: "storage"}
	})
	g.add(onPVC())
	vmi := g.waits("web", "FailedCreate", "volume root: PVC data: PersistentVolume pv1: its Secret chap is in namespace storage")
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, *vmi.Spec.Volumes[0].DeepCopy())
	vmi.Spec.Volumes[1].Name = "again"
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}}
	fakecluster.Change(t, g.Cluster, pv, func(pv *corev1.PersistentVolume) { pv.Spec.ISCSI.SecretRef.Namespace = "" })
	objects, err := g.r.maker.pvcs.pvcObjects(t.Context(), vmi)
	if err != nil {
		t.Fatal(err)
	}
	_, trouble, err := g.r.maker.disks.find(t.Context(), vmi, objects)
	if err != nil || trouble == nil || !strings.Contains(trouble.message, "volume again: another volume of the instance is the same disk") {
		t.Errorf("%+v, %v", trouble, err)
	}
}

// TestTargetTurns: an instance waits while another worker looks who uses its disk.
func TestTargetTurns(t *testing.T) {
	g := netRig(t)
	g.addVolume("pv1", g.addPVC(corev1.ReadWriteOnce))
	g.add(onPVC())
	end := g.r.maker.turns.take([]string{"iscsi iqn.2026-11.com.example:disk/1"})
	if got := g.reconcile(); got.RequeueAfter != turn || len(g.pods()) != 0 {
		t.Errorf("%+v, %d pods", got, len(g.pods()))
	}
	end()
	g.reconcile()
	g.onePod()
}
