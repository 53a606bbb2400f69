package pool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	api "kubevirt.io/api/pool/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// rig is a reconciler with a cluster in memory and a fake clock. The test is the
// controller of VMs.
type rig struct {
	*fakecluster.Cluster
	t   *testing.T
	now time.Time
	r   *Reconciler
	// dataVolumes are the owners of CDI's objects.
	dataVolumes map[string]owners
}

var web = types.NamespacedName{Namespace: "default", Name: "web"}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, now: time.Now().Truncate(time.Second), dataVolumes: map[string]owners{}}
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types: []func(*runtime.Scheme) error{
			corev1.AddToScheme, appsv1.AddToScheme, kubevirt.AddToScheme, api.AddToScheme, exportapi.AddToScheme,
		},
		Status: []client.Object{new(vmPool), new(kubevirt.VirtualMachine), new(kubevirt.VirtualMachineInstance)},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			return b.WithIndex(new(kubevirt.VirtualMachine), index.Owner, index.OwnerOf(api.VirtualMachinePoolKind))
		},
	})
	g.r = NewReconciler(Options{
		Client: g.Cached(), Live: g.Client, Revisions: g.Cached(), DataVolumes: g, Events: g.Recorder,
		Now: func() time.Time { return g.now },
	})
	return g
}

// ChangeOwners does what CDI's API would.
func (g *rig) ChangeOwners(_ context.Context, _, name string, change func(owners) owners) error {
	g.dataVolumes[name] = change(g.dataVolumes[name])
	return nil
}

// add creates the pool.
func (g *rig) add(replicas int32, change ...func(*vmPool)) *vmPool {
	g.t.Helper()
	labels := map[string]string{"app": "web"}
	pool := &vmPool{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	pool.Spec.Replicas = &replicas
	pool.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	template := new(kubevirt.VirtualMachineInstanceTemplateSpec)
	template.Spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("64Mi"))}
	pool.Spec.VirtualMachineTemplate = &api.VirtualMachineTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       kubevirt.VirtualMachineSpec{RunStrategy: new(kubevirt.RunStrategyAlways), Template: template},
	}
	for _, c := range change {
		c(pool)
	}
	g.Add(g.t, pool)
	return pool
}

func (g *rig) pool() *vmPool {
	g.t.Helper()
	pool := &vmPool{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	if !g.Exists(g.t, pool) {
		g.t.Fatal("the pool is gone")
	}
	return pool
}

func (g *rig) edit(change func(*vmPool)) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.pool(), change)
}

func (g *rig) scale(replicas int32) {
	g.t.Helper()
	g.edit(func(pool *vmPool) { pool.Spec.Replicas = &replicas })
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

// vms returns the VMs that are not being deleted, sorted by name.
func (g *rig) vms() []*kubevirt.VirtualMachine {
	g.t.Helper()
	var list kubevirt.VirtualMachineList
	if err := g.List(g.t.Context(), &list, client.InNamespace(web.Namespace)); err != nil {
		g.t.Fatal(err)
	}
	var all []*kubevirt.VirtualMachine
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			all = append(all, &list.Items[i])
		}
	}
	slices.SortFunc(all, func(a, b *kubevirt.VirtualMachine) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// has holds the names of the VMs against what they should be.
func (g *rig) has(want ...string) {
	g.t.Helper()
	var names []string
	for _, vm := range g.vms() {
		names = append(names, vm.Name)
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		g.t.Fatalf("VMs %s, want %s", names, want)
	}
}

func (g *rig) vm(name string) *kubevirt.VirtualMachine {
	g.t.Helper()
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name}}
	if !g.Exists(g.t, vm) {
		g.t.Fatalf("no VM %s", name)
	}
	return vm
}

// change does the work of a VM's controller, or of its user.
func (g *rig) change(name string, change func(*kubevirt.VirtualMachine)) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vm(name), change)
}

// gone lets deleted VMs go, as their controller does once their guests have ended.
func (g *rig) gone() {
	g.t.Helper()
	var list kubevirt.VirtualMachineList
	if err := g.List(g.t.Context(), &list, client.InNamespace(web.Namespace)); err != nil {
		g.t.Fatal(err)
	}
	for i := range list.Items {
		if vm := &list.Items[i]; vm.DeletionTimestamp != nil {
			if vmi := g.vmi(vm.Name); vmi != nil {
				if err := g.Delete(g.t.Context(), vmi); err != nil {
					g.t.Fatal(err)
				}
			}
			fakecluster.Change(g.t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) { vm.Finalizers = nil })
		}
	}
}

func (g *rig) vmi(name string) *kubevirt.VirtualMachineInstance {
	g.t.Helper()
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name}}
	if !g.Exists(g.t, vmi) {
		return nil
	}
	return vmi
}

// run gives each VM that has none an instance, which is ready.
func (g *rig) run() {
	g.t.Helper()
	for _, vm := range g.vms() {
		if g.vmi(vm.Name) == nil {
			g.start(vm.Name, corev1.ConditionTrue)
		}
	}
}

func (g *rig) start(name string, ready corev1.ConditionStatus) {
	g.t.Helper()
	vm := g.vm(name)
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: vm.Namespace, Name: vm.Name, Labels: vm.Spec.Template.ObjectMeta.Labels, CreationTimestamp: metav1.NewTime(g.now),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)},
	}}
	vmi.Status.Phase = kubevirt.Running
	vmi.Status.Conditions = []kubevirt.VirtualMachineInstanceCondition{{Type: kubevirt.VirtualMachineInstanceReady, Status: ready}}
	g.Add(g.t, vmi)
	g.change(name, func(vm *kubevirt.VirtualMachine) {
		vm.Status.Ready = ready == corev1.ConditionTrue
		vm.Status.PrintableStatus = kubevirt.VirtualMachineStatusRunning
	})
}

// running returns the names of the VMs with an instance.
func (g *rig) running() string {
	g.t.Helper()
	var names []string
	for _, vm := range g.vms() {
		if g.vmi(vm.Name) != nil {
			names = append(names, vm.Name)
		}
	}
	return strings.Join(names, " ")
}

// expect holds what was written since the last time against what should have been.
func (g *rig) expect(writes string) {
	g.t.Helper()
	if got := g.Writes(); got != writes {
		g.t.Errorf("writes: %s\nwant:   %s", got, writes)
	}
}

// status holds the pool's status against what it should be.
func (g *rig) status(replicas, ready int32) {
	g.t.Helper()
	if s := g.pool().Status; s.Replicas != replicas || s.ReadyReplicas != ready {
		g.t.Errorf("status %+v, want %d replicas and %d ready", s, replicas, ready)
	}
}

// condition returns a condition of the pool; nil if it has none of the kind.
func (g *rig) condition(kind api.VirtualMachinePoolConditionType) *cond {
	g.t.Helper()
	return find(g.pool().Status.Conditions, kind)
}
