package vmi

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// onPVC puts an instance's only disk on a PVC.
func onPVC(change ...func(*kubevirt.Disk)) func(*kubevirt.VirtualMachineInstance) {
	return func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
			PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			},
		}}}
		for _, c := range change {
			c(&vmi.Spec.Domain.Devices.Disks[0])
		}
	}
}

// onEphemeral makes an instance's PVC ephemeral.
func onEphemeral(vmi *kubevirt.VirtualMachineInstance) {
	onPVC()(vmi)
	v := &vmi.Spec.Volumes[0]
	v.Ephemeral = &kubevirt.EphemeralVolumeSource{PersistentVolumeClaim: &v.PersistentVolumeClaim.PersistentVolumeClaimVolumeSource}
	v.PersistentVolumeClaim = nil
}

func asCD(d *kubevirt.Disk) { d.DiskDevice = kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{}} }

func call(name string) func(*kubevirt.VirtualMachineInstance) {
	return func(vmi *kubevirt.VirtualMachineInstance) { vmi.Name = name }
}

// addPVC creates the PVC data.
func (g *rig) addPVC(modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	g.t.Helper()
	g.wire(func(o *Options) { o.Pods.StubImage = "registry.example.com/stub:1" })
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
	pvc.Spec.AccessModes = modes
	pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	g.Add(g.t, pvc)
	return pvc
}

// waits fails the test unless the instance of a name has no pod for a reason.
func (g *rig) waits(name, reason, words string) *kubevirt.VirtualMachineInstance {
	g.t.Helper()
	g.reconcileOf(name)
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name}}
	if !g.Exists(g.t, vmi) {
		g.t.Fatalf("no instance %s", name)
	}
	c := find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceSynchronized)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, words) {
		g.t.Errorf("%s: condition %+v; want %s: %s", name, c, reason, words)
	}
	if vmi.Status.Phase != kubevirt.Pending {
		g.t.Errorf("%s: phase %s", name, vmi.Status.Phase)
	}
	return vmi
}

func (g *rig) reconcileOf(name string) ctrl.Result {
	g.t.Helper()
	result, err := g.r.Reconcile(g.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: web.Namespace, Name: name}})
	if err != nil {
		g.t.Fatal(err)
	}
	return result
}

// TestPVC: an instance waits until its PVC exists, and has a pod then, though the PVC
// is not bound yet.
func TestPVC(t *testing.T) {
	g := newRig(t)
	g.add(onPVC())
	vmi := g.waits("web", "FailedPvcNotFound", "PVC default/data does not exist")
	c := find(vmi.Status.Conditions, podScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
		t.Errorf("condition %+v", c)
	}
	if got := g.Events(); strings.Count(got, "\n") != 0 || !strings.HasPrefix(got, "Warning FailedPvcNotFound PVC default/data") {
		t.Errorf("events: %s", got)
	}
	g.reconcile()
	g.addPVC(corev1.ReadWriteOnce)
	g.Writes()
	g.reconcile()
	g.expect("create Pod")
	p := g.onePod()
	if v := p.Spec.Volumes; len(v) != 1 || v[0].PersistentVolumeClaim.ClaimName != "data" {
		t.Errorf("volumes: %+v", v)
	}
	g.bind(p, "node1")
	g.state(p, running)
	g.reconcile()
	s := g.vmi().Status
	if len(s.VolumeStatus) != 1 || s.VolumeStatus[0].PersistentVolumeClaimInfo == nil || s.VolumeStatus[0].PersistentVolumeClaimInfo.ClaimName != "data" {
		t.Errorf("volumes: %+v", s.VolumeStatus)
	}
	if c := find(s.Conditions, podScheduled); c == nil || c.Status != corev1.ConditionTrue {
		t.Errorf("condition %+v", c)
	}
	g.Writes()
	g.reconcile()
	g.expect("")

	// A larger capacity is that of the disk once it has grown.
	for _, c := range []struct{ now, want string }{{"1Gi", "1Gi"}, {"2Gi", "1Gi"}, {"1Gi", "1Gi"}} {
		pvc := new(corev1.PersistentVolumeClaim)
		assert.NilError(t, g.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "data"}, pvc))
		fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(c.now)}
		})
		g.reconcile()
		size := g.vmi().Status.VolumeStatus[0].PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
		assert.Equal(t, size.String(), c.want)
	}
}

// TestDeletedPVC: a PVC that is being deleted gets no new user.
func TestDeletedPVC(t *testing.T) {
	g := newRig(t)
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) { pvc.Finalizers = []string{"kubernetes.io/pvc-protection"} })
	if err := g.Delete(t.Context(), pvc); err != nil {
		t.Fatal(err)
	}
	g.add(onPVC())
	g.waits("web", "PVCDeleted", "PVC default/data is being deleted")
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) { pvc.Finalizers = nil })
	g.waits("web", "FailedPvcNotFound", "PVC default/data does not exist")
}

// TestPVCOfAnother: one instance at a time writes a PVC, unless that is for several.
func TestPVCOfAnother(t *testing.T) {
	g := newRig(t)
	g.addPVC(corev1.ReadWriteOnce)
	g.add(onPVC())
	g.reconcile()
	first := g.onePod()
	g.add(call("other"), onPVC())
	g.waits("other", "PVCInUse", "in use by instance web (pod "+first.Name+")")
	g.add(call("reader"), onPVC(asCD))
	g.waits("reader", "PVCInUse", "in use by instance web")
	g.bind(first, "node1")
	g.state(first, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	g.reconcileOf("reader")
	g.add(call("another-reader"), onPVC(asCD))
	g.reconcileOf("another-reader")
	if got := len(g.pods()); got != 3 {
		t.Errorf("%d pods; want one that has ended and two that read", got)
	}
	g.waits("other", "PVCInUse", "in use by instance another-reader")
}

// TestShareable: instances of one node share a PVC if the disk of each is shareable.
func TestShareable(t *testing.T) {
	share := func(vmi *kubevirt.VirtualMachineInstance) { vmi.Spec.Domain.Devices.Disks[0].Shareable = new(true) }
	g := newRig(t)
	g.addPVC(corev1.ReadWriteOnce)
	g.add(onPVC(), share)
	g.reconcile()
	g.onePod()
	g.add(call("other"), onPVC(), share)
	g.reconcileOf("other")
	if got := len(g.pods()); got != 2 {
		t.Errorf("%d pods", got)
	}
	g.add(call("alone"), onPVC())
	g.waits("alone", "PVCInUse", "in use by instance")
}

// TestEphemeralPVC: instances share a PVC that is ephemeral for all of them.
func TestEphemeralPVC(t *testing.T) {
	g := newRig(t)
	g.add(onEphemeral)
	g.waits("web", "FailedPvcNotFound", "PVC default/data does not exist")
	g.addPVC(corev1.ReadWriteOnce)
	g.add(call("other"), onEphemeral)
	g.reconcile()
	g.reconcileOf("other")
	if got := len(g.pods()); got != 2 {
		t.Errorf("%d pods", got)
	}
	g.add(call("writer"), onPVC())
	g.waits("writer", "PVCInUse", "in use by instance")
}

// TestUnfilledPVC: an instance that can't fill a PVC from its image waits until another one has.
func TestUnfilledPVC(t *testing.T) {
	g := newRig(t)
	pvc := g.addPVC(corev1.ReadWriteOnce)
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Annotations = map[string]string{"nodevirt.io/disk-origin": "registry.example.com/guest:1"}
	})
	g.add(onEphemeral)
	g.add(call("reader"), onPVC(asCD))
	g.add(call("mounts"), onPVC(), func(vmi *kubevirt.VirtualMachineInstance) {
		d := &vmi.Spec.Domain.Devices
		d.Disks, d.Filesystems = nil, []kubevirt.Filesystem{{Name: "root", Virtiofs: &kubevirt.FilesystemVirtiofs{}}}
	})
	for _, name := range []string{"web", "reader", "mounts"} {
		g.waits(name, "PVCNotFilled", "PVC default/data is not a copy of image registry.example.com/guest:1 yet")
	}
	fakecluster.Change(t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations["nodevirt.io/disk-filled"] = "true" })
	g.reconcile()
	g.onePod()
}

// TestSharedPVC: instances share a PVC whose access mode is for that.
func TestSharedPVC(t *testing.T) {
	g := newRig(t)
	g.addPVC(corev1.ReadWriteOnce, corev1.ReadWriteMany)
	g.add(onPVC())
	g.add(call("other"), onPVC())
	g.reconcile()
	g.reconcileOf("other")
	if got := len(g.pods()); got != 2 {
		t.Errorf("%d pods", got)
	}
}

// TestPVCTurns: an instance waits while another worker looks who uses its PVC.
func TestPVCTurns(t *testing.T) {
	g := newRig(t)
	g.addPVC(corev1.ReadWriteOnce)
	g.add(onPVC())
	end := g.r.maker.turns.take([]string{"default/other", "default/data"})
	if got := g.reconcile(); got.RequeueAfter != turn || len(g.pods()) != 0 {
		t.Errorf("%+v, %d pods", got, len(g.pods()))
	}
	end()
	g.reconcile()
	g.onePod()
	if again := g.r.maker.turns.take([]string{"default/data"}); again == nil {
		t.Error("a turn has not ended")
	}
}

// TestUsers: the events of a pod that uses a PVC are those of the PVC's instances.
func TestUsers(t *testing.T) {
	g := newRig(t)
	g.addPVC(corev1.ReadWriteOnce)
	g.add(onPVC())
	g.reconcile()
	g.add(call("other"), onPVC())
	g.add(call("stranger"))
	if got := g.r.sharersOfPod(t.Context(), g.onePod()); len(got) != 2 {
		t.Errorf("of the pod: %v", got)
	}
}
