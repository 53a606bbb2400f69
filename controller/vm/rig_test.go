package vm

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	typesapi "kubevirt.io/api/instancetype/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/index"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// rig is a reconciler with a cluster in memory and a fake clock. The test is the
// controller of instances.
type rig struct {
	*fakecluster.Cluster
	t   *testing.T
	now time.Time
	r   *Reconciler
	// snapshotClasses are the cluster's VolumeSnapshotClasses, looks how often they were listed.
	snapshotClasses []volumesnapshot.Class
	looks           int
}

// Classes is external-snapshotter's.
func (g *rig) Classes(context.Context) ([]volumesnapshot.Class, bool, error) {
	g.looks++
	return g.snapshotClasses, g.snapshotClasses != nil, nil
}

var web = types.NamespacedName{Namespace: "default", Name: "web"}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, now: time.Now().Truncate(time.Second)}
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types: []func(*runtime.Scheme) error{
			corev1.AddToScheme, appsv1.AddToScheme, storagev1.AddToScheme, kubevirt.AddToScheme, typesapi.AddToScheme,
		},
		Status: []client.Object{new(kubevirt.VirtualMachine), new(kubevirt.VirtualMachineInstance)},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			return b.WithIndex(new(kubevirt.VirtualMachine), index.PVC, pvcNames).WithIndex(new(kubevirt.VirtualMachineInstance), index.PVC, instances.PVCNames)
		},
	})
	g.r = NewReconciler(Options{
		Client: g.Cached(), Live: g.Client, Revisions: g.Cached(), Events: g.Recorder,
		Snapshots: g, Now: func() time.Time { return g.now },
	})
	return g
}

// add creates the VM.
func (g *rig) add(strategy kubevirt.VirtualMachineRunStrategy, change ...func(*kubevirt.VirtualMachine)) {
	g.t.Helper()
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name, Generation: 3}}
	vm.Spec.RunStrategy = &strategy
	vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	vm.Spec.Template.Spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("64Mi"))}
	for _, c := range change {
		c(vm)
	}
	g.Add(g.t, vm)
}

// reconcile does it once, and fails the test if that fails.
func (g *rig) reconcile() ctrl.Result {
	g.t.Helper()
	result, err := g.try()
	if err != nil {
		g.t.Fatal(err)
	}
	return result
}

func (g *rig) try() (ctrl.Result, error) {
	return g.r.Reconcile(g.t.Context(), ctrl.Request{NamespacedName: web})
}

// vm returns the VM; nil if it is gone.
func (g *rig) vm() *kubevirt.VirtualMachine {
	g.t.Helper()
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	if !g.Exists(g.t, vm) {
		return nil
	}
	return vm
}

// vmi returns the instance of the VM's name; nil if there is none.
func (g *rig) vmi() *kubevirt.VirtualMachineInstance {
	g.t.Helper()
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	if !g.Exists(g.t, vmi) {
		return nil
	}
	return vmi
}

// phase does the work of the instance's controller.
func (g *rig) phase(phase kubevirt.VirtualMachineInstancePhase, more ...func(*kubevirt.VirtualMachineInstance)) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.Phase = phase
		vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
			kubevirt.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(g.now)})
		for _, m := range more {
			m(vmi)
		}
	})
}

// ended lets a deleted instance go, as its controller does once its guest has ended.
func (g *rig) ended() {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.Finalizers = nil })
	if g.vmi() != nil {
		g.t.Fatal("the instance was not deleted")
	}
}

// request asks for a change of state, as virtctl does.
func (g *rig) request(all ...kubevirt.VirtualMachineStateChangeRequest) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Status.StateChangeRequests = all })
}

// printable holds the one word of the VM's status against what it should be.
func (g *rig) printable(want kubevirt.VirtualMachinePrintableStatus) {
	g.t.Helper()
	if got := g.vm().Status.PrintableStatus; got != want {
		g.t.Errorf("status %s, want %s", got, want)
	}
}

// failure returns the VM's condition Failure; nil if it has none.
func (g *rig) failure() *cond {
	g.t.Helper()
	vm := g.vm()
	for i := range vm.Status.Conditions {
		if vm.Status.Conditions[i].Type == kubevirt.VirtualMachineFailure {
			return &vm.Status.Conditions[i]
		}
	}
	return nil
}

// expect holds what was written since the last time against what should have been.
func (g *rig) expect(writes string) {
	g.t.Helper()
	if got := g.Writes(); got != writes {
		g.t.Errorf("writes: %s\nwant:   %s", got, writes)
	}
}
