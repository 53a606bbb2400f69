package vm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/setup"
)

// queue is a controller's, with the events of VMs and of their instances.
type queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
}

func (q queue) vm(name string, change func(*kubevirt.VirtualMachine)) {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1, ResourceVersion: "2"}}
	vm.Status.DesiredGeneration = 1
	before := vm.DeepCopy()
	before.ResourceVersion = "1"
	change(vm)
	setup.Urgent(requested).Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: vm}, q)
}

func (q queue) vmi(name string, phase kubevirt.VirtualMachineInstancePhase) {
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	vmi.Status.Phase = phase
	setup.Urgent(ended).Create(context.Background(), event.CreateEvent{Object: vmi}, q)
}

// TestOrder: a request of users, also that for a new VM, does not wait for the statuses of VMs that run.
func TestOrder(t *testing.T) {
	const old = 1000
	for name, request := range map[string]func(queue){
		"new": func(q queue) {
			vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new", Generation: 1}}
			setup.Urgent(requested).Create(t.Context(), event.CreateEvent{Object: vm}, q)
		},
		"edited": func(q queue) { q.vm("edited", func(vm *kubevirt.VirtualMachine) { vm.Generation = 2 }) },
		"deleted": func(q queue) {
			q.vm("deleted", func(vm *kubevirt.VirtualMachine) { vm.DeletionTimestamp = new(metav1.Now()) })
		},
		"stopped": func(q queue) {
			q.vm("stopped", func(vm *kubevirt.VirtualMachine) {
				vm.Status.StateChangeRequests = []kubevirt.VirtualMachineStateChangeRequest{{Action: kubevirt.StopRequest}}
			})
		},
		"ended": func(q queue) { q.vmi("ended", kubevirt.Failed) },
		"old-900": func(q queue) { // it has a place in the queue already
			q.vm("old-900", func(vm *kubevirt.VirtualMachine) { vm.Generation = 2 })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := queue{priorityqueue.New[reconcile.Request]("vm")}
			defer q.ShutDown()
			for i := range old {
				q.vm(fmt.Sprint("old-", i), func(*kubevirt.VirtualMachine) {})
				q.vmi(fmt.Sprint("old-", i), kubevirt.Running)
			}
			request(q)
			synctest.Wait()
			if first, _ := q.Get(); first.Name != name {
				t.Errorf("%s: %s is first", name, first.Name)
			}
			if second, _ := q.Get(); second.Name != "old-0" {
				t.Errorf("%s: %s is second", name, second.Name)
			}
		})
	}
}

// TestOrderOfFailures: a VM that cannot start has one turn before the others, and then waits as they do.
func TestOrderOfFailures(t *testing.T) {
	for _, result := range []reconcile.Result{{}, {RequeueAfter: time.Second}} {
		fails := setup.Unhurried(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return result, errors.New("no such type")
		}))
		got, _ := fails.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "new"}})
		if got.Priority == nil || *got.Priority != 0 {
			t.Errorf("the priority of the next try is %v", got.Priority)
		}
	}
}
