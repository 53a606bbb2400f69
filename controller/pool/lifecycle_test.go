package pool

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/replicas"
)

// TestScale: VMs are numbered from 0, and while nothing changes nothing is written.
func TestScale(t *testing.T) {
	g := newRig(t)
	pool := g.add(3)
	g.reconcile()
	g.expect("create ControllerRevision, create VirtualMachine, create VirtualMachine, create VirtualMachine, patch status of VirtualMachinePool")
	g.has("web-0", "web-1", "web-2")
	vm := g.vm("web-1")
	const revision = kubevirt.VirtualMachinePoolRevisionName
	if !metav1.IsControlledBy(vm, pool) || vm.Labels["app"] != "web" || vm.Labels[revision] == "" ||
		vm.Spec.Template.ObjectMeta.Labels[revision] != vm.Labels[revision] {
		t.Errorf("%+v", vm.ObjectMeta)
	}
	if e := g.Events(); strings.Count(e, "Normal SuccessfulCreate Created VM default/web-") != 3 {
		t.Errorf("events: %s", e)
	}
	g.status(3, 0)
	if got := g.pool().Status.LabelSelector; got != "app=web" {
		t.Errorf("an autoscaler's selector: %q", got)
	}
	g.run()
	g.reconcile()
	g.status(3, 3)
	g.Writes()
	g.reconcile()
	g.expect("")
	g.scale(0)
	g.reconcile()
	g.has()
	g.status(0, 0)
	g.gone()
	g.reconcile()
	g.has()
}

// TestHuge: of as many VMs as a pool may request, a pass makes some.
func TestHuge(t *testing.T) {
	g := newRig(t)
	g.add(1<<31 - 1)
	g.reconcile()
	made := new(kubevirt.VirtualMachineList)
	if err := g.List(t.Context(), made); err != nil || len(made.Items) != replicas.Most {
		t.Errorf("%d VMs were made: %v", len(made.Items), err)
	}
}

// TestReplacement: a VM that is being deleted keeps its place and its name until it is
// gone.
func TestReplacement(t *testing.T) {
	g := newRig(t)
	g.add(3)
	g.reconcile()
	if err := g.Delete(t.Context(), g.vm("web-1")); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	g.has("web-0", "web-2")
	g.status(2, 0)
	g.gone()
	g.reconcile()
	g.has("web-0", "web-1", "web-2")
}

// TestDetached: a VM without its owner is not the pool's any more, and its number is
// skipped until the VM is gone or returned.
func TestDetached(t *testing.T) {
	g := newRig(t)
	g.add(2)
	g.reconcile()
	owner := g.vm("web-0").OwnerReferences
	g.change("web-0", func(vm *kubevirt.VirtualMachine) { vm.OwnerReferences = nil })
	g.reconcile()
	g.has("web-0", "web-1", "web-2")
	g.status(2, 0)
	g.change("web-0", func(vm *kubevirt.VirtualMachine) { vm.OwnerReferences = owner })
	g.edit(func(pool *vmPool) { pool.Spec.ScaleInStrategy = descending() })
	g.reconcile()
	g.has("web-0", "web-1")
}

func descending() *api.VirtualMachinePoolScaleInStrategy {
	return &api.VirtualMachinePoolScaleInStrategy{Proactive: &api.VirtualMachinePoolProactiveScaleInStrategy{
		SelectionPolicy: &api.VirtualMachinePoolSelectionPolicy{SortPolicy: new(api.VirtualMachinePoolSortPolicyDescendingOrder)},
	}}
}

// TestStaleCache: a controller that does not see a VM yet does not create another one
// in its place.
func TestStaleCache(t *testing.T) {
	g := newRig(t)
	pool := g.add(1)
	g.Add(t, newVM(pool, 0))
	g.change("web-0", func(vm *kubevirt.VirtualMachine) { vm.OwnerReferences = nil }) // not in the list
	g.Hidden = func(o client.Object) bool { return o.GetName() == "web-0" }
	if _, err := g.try(); !apierrors.IsAlreadyExists(err) {
		t.Errorf("error %v", err)
	}
	g.has("web-0")
}

// TestPaused: a pool that is paused changes nothing but its status.
func TestPaused(t *testing.T) {
	g := newRig(t)
	g.add(0)
	g.reconcile()
	g.edit(func(pool *vmPool) { pool.Spec.Paused, pool.Spec.Replicas = true, new(int32(1)) })
	g.reconcile()
	g.has()
	if c := g.condition(api.VirtualMachinePoolReplicaPaused); c == nil || len(g.pool().Status.Conditions) != 1 {
		t.Errorf("conditions %+v", g.pool().Status.Conditions)
	}
	g.edit(func(pool *vmPool) { pool.Spec.Paused = false })
	g.reconcile()
	g.has("web-0")
	if c := g.pool().Status.Conditions; len(c) > 0 {
		t.Errorf("conditions %+v", c)
	}
	if e := g.Events(); !strings.Contains(e, "SuccessfulPaused") || !strings.Contains(e, "SuccessfulResumed") {
		t.Errorf("events: %s", e)
	}
}

// TestDeleted: a pool that is being deleted replaces no VM, even if the cache does not
// know it yet, and is forgotten in the end.
func TestDeleted(t *testing.T) {
	g := newRig(t)
	g.add(1, func(pool *vmPool) { pool.Finalizers = []string{metav1.FinalizerDeleteDependents} })
	stale := g.pool()
	if err := g.Delete(t.Context(), g.pool()); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	g.has()
	if err := g.r.grow(t.Context(), &work{pool: stale, now: g.now}); err != nil {
		t.Fatal(err)
	}
	g.has()
	g.edit(func(pool *vmPool) { pool.Finalizers = nil })
	g.Writes()
	g.reconcile()
	g.expect("")
}

// TestQuota: what the API server refuses is reported, and not asked for again for each
// VM. The other VMs are updated all the same.
func TestQuota(t *testing.T) {
	g := newRig(t)
	g.add(1)
	g.reconcile()
	refused := errors.New("exceeded quota")
	g.Fail = func(verb string, o client.Object) error {
		if _, is := o.(*kubevirt.VirtualMachine); is && verb == "create" {
			return refused
		}
		return nil
	}
	g.edit(func(pool *vmPool) {
		pool.Spec.Replicas = new(int32(9))
		pool.Spec.VirtualMachineTemplate.ObjectMeta.Labels["tier"] = "front"
	})
	g.Events()
	if _, err := g.try(); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	c := g.condition(api.VirtualMachinePoolReplicaFailure)
	if c == nil || c.Reason != "FailedCreate" || !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("condition %+v", c)
	}
	if e := g.Events(); strings.Count(e, "Warning FailedCreate") != 1 {
		t.Errorf("events: %s", e)
	}
	if g.vm("web-0").Labels["tier"] != "front" {
		t.Error("not updated")
	}
	g.Fail = nil
	g.reconcile()
	if g.condition(api.VirtualMachinePoolReplicaFailure) != nil || len(g.vms()) != 9 {
		t.Errorf("%d VMs, %+v", len(g.vms()), g.pool().Status)
	}
}

// TestFailures: every failure of a write is reported with its reason, but for a cache
// that is behind.
func TestFailures(t *testing.T) {
	conflict := apierrors.NewConflict(api.Resource("virtualmachinepools"), "web", errors.New("changed"))
	for _, c := range []struct {
		name, verb, reason string
		change             func(*vmPool)
		err                error
	}{
		{"delete", "delete VirtualMachine", "FailedDelete", func(pool *vmPool) { pool.Spec.Replicas = new(int32(0)) }, errors.New("no")},
		{"update", "patch VirtualMachine", "FailedUpdate", func(pool *vmPool) { pool.Spec.VirtualMachineTemplate.ObjectMeta.Labels["a"] = "b" }, errors.New("no")},
		{"conflict", "patch VirtualMachine", "", func(pool *vmPool) { pool.Spec.VirtualMachineTemplate.ObjectMeta.Labels["a"] = "b" }, conflict},
		{"revision", "create ControllerRevision", "FailedUpdate", func(pool *vmPool) { pool.Spec.VirtualMachineTemplate.ObjectMeta.Labels["a"] = "b" }, errors.New("no")},
		{"replace", "delete VirtualMachineInstance", "FailedUpdate", func(pool *vmPool) { pool.Spec.VirtualMachineTemplate.Spec.Template.Spec.Hostname = "x" }, errors.New("no")},
		{"status", "patch status of VirtualMachinePool", "", func(pool *vmPool) { pool.Spec.Paused = true }, errors.New("no")},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t)
			g.add(1)
			g.reconcile()
			g.run()
			g.reconcile()
			g.edit(c.change)
			g.Fail = func(verb string, o client.Object) error {
				kinds, _, _ := g.Scheme().ObjectKinds(o)
				if verb+" "+kinds[0].Kind == c.verb {
					return c.err
				}
				return nil
			}
			if _, err := g.try(); err == nil {
				t.Error("no error")
			}
			g.Fail = nil
			got := g.condition(api.VirtualMachinePoolReplicaFailure)
			if c.reason == "" && got != nil || c.reason != "" && (got == nil || got.Reason != c.reason) {
				t.Errorf("condition %+v, want %s", got, c.reason)
			}
		})
	}
}

// TestUnsound: a pool that admission would refuse has a condition.
func TestUnsound(t *testing.T) {
	for _, change := range []func(*vmPool){
		func(pool *vmPool) { pool.Spec.VirtualMachineTemplate = nil },
		func(pool *vmPool) { pool.Spec.Selector = nil },
		func(pool *vmPool) { pool.Spec.Selector.MatchLabels["app"] = "other" },
		func(pool *vmPool) {
			pool.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Among"}}
		},
	} {
		g := newRig(t)
		g.add(1)
		g.edit(change)
		g.reconcile()
		if c := g.condition(api.VirtualMachinePoolReplicaFailure); c == nil || !strings.HasPrefix(c.Message, "spec.") && !strings.Contains(c.Message, "Among") {
			t.Errorf("condition %+v", c)
		}
		g.has()
	}
}
