package pool

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

func proactive(policy *api.VirtualMachinePoolSelectionPolicy, state api.StatePreservation) func(*vmPool) {
	return func(pool *vmPool) {
		pool.Spec.ScaleInStrategy = &api.VirtualMachinePoolScaleInStrategy{
			Proactive: &api.VirtualMachinePoolProactiveScaleInStrategy{SelectionPolicy: policy, StatePreservation: &state},
		}
	}
}

// TestScaleInSelectors: only VMs that the policy selects are removed.
func TestScaleInSelectors(t *testing.T) {
	g := newRig(t)
	policy := &api.VirtualMachinePoolSelectionPolicy{
		SortPolicy: new(api.VirtualMachinePoolSortPolicyAscendingOrder),
		Selectors: &api.VirtualMachinePoolSelectors{
			LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "keep", Operator: metav1.LabelSelectorOpDoesNotExist},
			}},
			NodeSelectorRequirementMatcher: &[]corev1.NodeSelectorRequirement{
				{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}},
			},
		},
	}
	g.add(4, proactive(policy, api.StatePreservationDisabled))
	g.Add(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"zone": "a"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{"zone": "b"}}})
	g.reconcile()
	for name, node := range map[string]string{"web-0": "a", "web-1": "b", "web-2": "b"} { // web-3 has none
		g.start(name, corev1.ConditionTrue)
		fakecluster.Change(t, g.Cluster, g.vmi(name), func(vmi *kubevirt.VirtualMachineInstance) { vmi.Status.NodeName = node })
	}
	g.change("web-1", func(vm *kubevirt.VirtualMachine) { vm.Labels["keep"] = "true" })
	g.scale(1)
	g.reconcile()
	g.has("web-0", "web-1", "web-3")
	g.status(3, 2)
}

// TestScaleInBehind: VMs are not too many because the cache does not yet know that the pool was enlarged.
func TestScaleInBehind(t *testing.T) {
	g := newRig(t)
	g.add(2)
	g.reconcile()
	g.edit(func(pool *vmPool) { pool.Spec.Replicas, pool.Generation = new(int32(4)), 2 })
	g.reconcile() // by the controller before
	g.Behind = func(o client.Object) {
		if pool, is := o.(*vmPool); is {
			pool.Spec.Replicas, pool.Generation = new(int32(2)), 1
		}
	}
	g.reconcile()
	g.has("web-0", "web-1", "web-2", "web-3")
	g.Behind = nil
	g.edit(func(pool *vmPool) { pool.Spec.Replicas, pool.Generation = new(int32(2)), 3 })
	g.reconcile()
	if n := len(g.vms()); n != 2 {
		t.Errorf("%d VMs, not 2", n)
	}
}

// TestScaleInOpportunistic: only VMs that have stopped are removed, as many as are too
// many.
func TestScaleInOpportunistic(t *testing.T) {
	g := newRig(t)
	g.add(3, func(pool *vmPool) {
		pool.Spec.ScaleInStrategy = &api.VirtualMachinePoolScaleInStrategy{Opportunistic: &api.VirtualMachinePoolOpportunisticScaleInStrategy{}}
	})
	g.reconcile()
	g.run()
	g.scale(1)
	g.reconcile()
	g.has("web-0", "web-1", "web-2")
	if err := g.Delete(t.Context(), g.vmi("web-1")); err != nil {
		t.Fatal(err)
	}
	g.change("web-1", func(vm *kubevirt.VirtualMachine) { vm.Status.PrintableStatus = kubevirt.VirtualMachineStatusStopped })
	g.reconcile()
	g.has("web-0", "web-2")
}

// TestScaleInUnmanaged: no VM is removed, and one that is removed by its user is not
// replaced.
func TestScaleInUnmanaged(t *testing.T) {
	g := newRig(t)
	g.add(3, func(pool *vmPool) {
		pool.Spec.ScaleInStrategy = &api.VirtualMachinePoolScaleInStrategy{Unmanaged: &api.VirtualMachinePoolUnmanagedStrategy{}}
	})
	g.reconcile()
	g.scale(2)
	g.reconcile()
	g.has("web-0", "web-1", "web-2")
	if err := g.Delete(t.Context(), g.vm("web-0")); err != nil {
		t.Fatal(err)
	}
	g.gone()
	g.reconcile()
	g.has("web-1", "web-2")
}

// withDisk gives each VM of the template a separate disk.
func withDisk(pool *vmPool) {
	spec := &pool.Spec.VirtualMachineTemplate.Spec
	spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "root"}}}
	spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "root"}}}}
}

// addPVC does what the VM's controller, or CDI, does for a template of a DataVolume.
func (g *rig) addPVC(vm *kubevirt.VirtualMachine, owner ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
	g.t.Helper()
	if owner == nil {
		owner = owners{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: vm.Namespace, Name: vm.Spec.DataVolumeTemplates[0].Name, OwnerReferences: owner,
	}}
	pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	g.Add(g.t, pvc)
	return pvc
}

// TestStatePreservation: the disk of a VM that is removed outlives it, and becomes the
// next VM's of that number.
func TestStatePreservation(t *testing.T) {
	ascending := &api.VirtualMachinePoolSelectionPolicy{SortPolicy: new(api.VirtualMachinePoolSortPolicyAscendingOrder)}
	g := newRig(t)
	g.add(2, withDisk, proactive(ascending, api.StatePreservationOffline))
	g.reconcile()
	pvc := g.addPVC(g.vm("web-0"))
	if pvc.Name != "root-0" || g.vm("web-0").Spec.Template.Spec.Volumes[0].DataVolume.Name != "root-0" {
		t.Fatalf("%s, %+v", pvc.Name, g.vm("web-0").Spec.Template.Spec.Volumes)
	}
	g.scale(1)
	g.Writes()
	g.reconcile()
	g.expect("patch PersistentVolumeClaim, delete VirtualMachine, patch status of VirtualMachinePool")
	g.has("web-1")
	if !g.Exists(t, pvc) || len(pvc.OwnerReferences) > 0 || pvc.Annotations[AnnotationPreserved] != "web" {
		t.Errorf("%+v", pvc.ObjectMeta)
	}
	g.gone()
	g.scale(2)
	g.reconcile()
	g.has("web-0", "web-1")
	g.reconcile()
	if !g.Exists(t, pvc) || !metav1.IsControlledBy(pvc, g.vm("web-0")) || len(pvc.Annotations) > 0 {
		t.Errorf("%+v", pvc.ObjectMeta)
	}
	g.Writes()
	g.reconcile()
	g.expect("")
}

// TestStatePreservationOfCDI: where a DataVolume owns the PVC, the DataVolume is
// released and adopted.
func TestStatePreservationOfCDI(t *testing.T) {
	g := newRig(t)
	g.add(1, withDisk, proactive(nil, api.StatePreservationOffline))
	g.reconcile()
	vm := g.vm("web-0")
	g.dataVolumes["root-0"] = owners{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	yes := true
	pvc := g.addPVC(vm, metav1.OwnerReference{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: datavolume.Kind, Name: "root-0", UID: "dv", Controller: &yes})
	g.scale(0)
	g.reconcile()
	if !g.Exists(t, pvc) || len(pvc.OwnerReferences) != 1 || len(g.dataVolumes["root-0"]) != 0 {
		t.Errorf("%+v, %+v", pvc.ObjectMeta, g.dataVolumes)
	}
	g.gone()
	g.scale(1)
	g.reconcile()
	g.reconcile()
	if all := g.dataVolumes["root-0"]; len(all) != 1 || all[0].UID != g.vm("web-0").UID || all[0].UID == vm.UID {
		t.Errorf("owners of the DataVolume: %+v", all)
	}
	if !g.Exists(t, pvc) || pvc.Annotations[AnnotationPreserved] != "" || len(pvc.OwnerReferences) != 1 {
		t.Errorf("%+v", pvc.ObjectMeta)
	}
}

// TestLeftDisk: a VM does not get the disk of its predecessor, which is about to be
// deleted with it.
func TestLeftDisk(t *testing.T) {
	yes := true
	for name, owner := range map[string]metav1.OwnerReference{
		"without CDI": {},
		"with CDI":    {APIVersion: "cdi.kubevirt.io/v1beta1", Kind: datavolume.Kind, Name: "root-0", UID: "dv", Controller: &yes},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.add(2, withDisk)
			g.reconcile()
			vm := g.vm("web-0")
			of := owners{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
			if owner.Name != "" {
				g.dataVolumes["root-0"], of = of, owners{owner}
			}
			pvc := g.addPVC(vm, of...)
			if err := g.Delete(t.Context(), vm); err != nil {
				t.Fatal(err)
			}
			g.gone()
			if got := g.reconcile(); got.RequeueAfter != collection {
				t.Errorf("%+v", got)
			}
			g.has("web-1")
			if err := g.Delete(t.Context(), pvc); err != nil {
				t.Fatal(err)
			}
			g.reconcile()
			g.has("web-0", "web-1")
		})
	}
}

// TestNotPreserved: a PVC that was there before its VM stays its owner's.
func TestNotPreserved(t *testing.T) {
	g := newRig(t)
	g.add(1, withDisk, proactive(nil, api.StatePreservationOffline))
	g.reconcile()
	pvc := g.addPVC(g.vm("web-0"), metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"})
	g.Writes()
	g.reconcile()
	g.expect("")
	g.scale(0)
	g.reconcile()
	if !g.Exists(t, pvc) || len(pvc.Annotations) > 0 {
		t.Errorf("%+v", pvc.ObjectMeta)
	}
}
