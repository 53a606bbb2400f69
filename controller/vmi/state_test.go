package vmi

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// keeping gives an instance of a VirtualMachine's UID, if any, a persistent TPM.
func keeping(vm types.UID) func(*kubevirt.VirtualMachineInstance) {
	return func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.TPM = &kubevirt.TPMDevice{Persistent: new(true)}
		if vm != "" {
			owner := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: vmi.Name, UID: vm}}
			vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kubevirt.VirtualMachineGroupVersionKind)}
		}
	}
}

// statePVCs returns the PVCs with persistent state.
func (g *rig) statePVCs() []corev1.PersistentVolumeClaim {
	g.t.Helper()
	var all corev1.PersistentVolumeClaimList
	if err := g.List(g.t.Context(), &all); err != nil {
		g.t.Fatal(err)
	}
	return slices.DeleteFunc(all.Items, func(c corev1.PersistentVolumeClaim) bool { return c.Labels[pod.StateLabel] == "" })
}

// mounted returns the name of the PVC that the only pod's VM has for its state.
func (g *rig) mounted() string {
	g.t.Helper()
	all := g.pods()
	if len(all) != 1 {
		g.t.Fatalf("%d pods", len(all))
	}
	c := all[0].Spec.Containers[0]
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == pod.StateVolume && m.MountPath == vmspec.StatePath && !m.ReadOnly
	}) {
		g.t.Errorf("mounts %v", c.VolumeMounts)
	}
	volume := stateVolume(&all[0])
	if volume == nil {
		g.t.Fatalf("volumes %v", all[0].Spec.Volumes)
	}
	return volume.PersistentVolumeClaimInfo.ClaimName
}

// drop deletes an object without its finalizers.
func (g *rig) drop(o client.Object) {
	g.t.Helper()
	o.SetFinalizers(nil)
	if err := errors.Join(g.Update(g.t.Context(), o), g.Delete(g.t.Context(), o)); err != nil {
		g.t.Fatal(err)
	}
}

// TestState: a VirtualMachine's instances have one PVC, which ends with the VirtualMachine. The next
// VirtualMachine of its name has another.
func TestState(t *testing.T) {
	g := newRig(t)
	g.wire(func(o *Options) { o.Config.Flags.StateClass = "fast" })
	names := map[types.UID]string{}
	for _, owner := range []types.UID{"one", "one", "two"} {
		g.add(keeping(owner))
		g.reconcile()
		name := g.mounted()
		if was := names[owner]; was != "" && was != name {
			t.Errorf("the state of VirtualMachine %s was on PVC %s, and is on %s", owner, was, name)
		}
		names[owner] = name
		for _, c := range g.statePVCs() {
			if c.Name != name {
				continue
			}
			s := c.Spec
			if o := metav1.GetControllerOf(&c); o == nil || o.UID != owner || c.Labels[pod.StateLabel] != web.Name ||
				s.StorageClassName == nil || *s.StorageClassName != "fast" || *s.VolumeMode != corev1.PersistentVolumeFilesystem ||
				!slices.Equal(s.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}) || s.Resources.Requests.Storage().String() != "10Mi" {
				t.Errorf("PVC %+v", c)
			}
		}
		for _, p := range g.pods() {
			g.drop(&p)
		}
		g.drop(g.vmi())
		g.reconcile()
	}
	if len(g.statePVCs()) != 2 || names["one"] == names["two"] {
		t.Errorf("the PVCs are %v, of %v", g.statePVCs(), names)
	}
}

// TestStateWithoutVM: the state of an instance without a VirtualMachine ends with the instance, and has the
// cluster's default class.
func TestStateWithoutVM(t *testing.T) {
	g := newRig(t)
	vmi := g.add(keeping(""))
	g.reconcile()
	g.mounted()
	all := g.statePVCs()
	if len(all) != 1 || metav1.GetControllerOf(&all[0]) == nil || metav1.GetControllerOf(&all[0]).UID != vmi.UID || all[0].Spec.StorageClassName != nil {
		t.Errorf("PVCs %+v", all)
	}
}

// TestSharedState: the target of a migration has the source's PVC if several nodes mount it.
func TestSharedState(t *testing.T) {
	g := newRig(t)
	g.wire(func(o *Options) { o.Config.Flags.StateShared = true })
	vmi := g.add(keeping("one"))
	g.reconcile()
	name := g.mounted()
	if all := g.statePVCs(); len(all) != 1 || !slices.Equal(all[0].Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}) {
		t.Errorf("PVCs %+v", all)
	}
	state, err := g.r.Pods.MoveState(t.Context(), vmi)
	if err != nil || state != name {
		t.Errorf("the target's state is on %q, %v", state, err)
	}
}

// TestKeptState: a PVC that a user has kept of an earlier VirtualMachine is used, and one of another
// VirtualMachine is not.
func TestKeptState(t *testing.T) {
	g := newRig(t)
	labels := map[string]string{pod.StateLabel: web.Name}
	other := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: web.Name, UID: "other"}}
	g.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "a", Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(other, kubevirt.VirtualMachineGroupVersionKind)}}})
	g.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "kept", Labels: labels}})
	g.add(keeping("one"))
	g.reconcile()
	if name := g.mounted(); name != "kept" {
		t.Errorf("its state is on %s", name)
	}
}

// TestStateInUse: the instance waits for another one that uses its PVC.
func TestStateInUse(t *testing.T) {
	g := newRig(t)
	g.wire(func(o *Options) { o.Pods.StubImage = "registry.example.com/stub:1" })
	g.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data",
		Labels: map[string]string{pod.StateLabel: web.Name}}})
	g.add(onPVC(), call("thief"))
	g.reconcileOf("thief")
	g.add(keeping("one"))
	g.waits(web.Name, ReasonPVCInUse, "PVC default/data is in use by instance thief")
}

// TestStateMoves: the PVC to which persistent state has moved with its guest takes the place of the former one, and goes if
// the guest has not moved. A PVC of another owner stays.
func TestStateMoves(t *testing.T) {
	for _, moved := range []bool{true, false} {
		g := newRig(t)
		add := func(name string, owner types.UID, labelled bool) *corev1.PersistentVolumeClaim {
			pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name,
				OwnerReferences: []metav1.OwnerReference{{Kind: "VirtualMachine", Name: web.Name, UID: owner, Controller: new(true)}}}}
			if labelled {
				pvc.Labels = map[string]string{pod.StateLabel: web.Name}
			}
			g.Add(t, pvc)
			return pvc
		}
		former, others := add("former", "owner", true), add("others", "another", true)
		target := add(pod.MovedStateName(web.Name, "migration"), "owner", false)
		s := &states{client: g.Cached()}
		for range 2 {
			if err := s.settle(t.Context(), web, "migration", moved); err != nil {
				t.Fatal(err)
			}
		}
		if g.Exists(t, former) == moved || g.Exists(t, target) != moved || !g.Exists(t, others) || moved && target.Labels[pod.StateLabel] != web.Name {
			t.Errorf("moved %t: former %t, target %t %v, others %t", moved, g.Exists(t, former), g.Exists(t, target), target.Labels, g.Exists(t, others))
		}
	}
}
