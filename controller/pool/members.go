package pool

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/index"
)

// member is a VM of a pool.
type member struct {
	vm *kubevirt.VirtualMachine
	// vmi is the VM's instance; nil if it has none.
	vmi *kubevirt.VirtualMachineInstance
	// index is the number in the VM's name; -1 if the name is not one of the pool's.
	index int
}

// members returns the VMs that a pool owns, those that are being deleted included. A
// pool adopts no VMs: a user detaches one by removing its owner.
func (r *Reconciler) members(ctx context.Context, pool *vmPool) ([]*member, error) {
	var list kubevirt.VirtualMachineList
	err := r.client.List(ctx, &list, client.InNamespace(pool.Namespace), client.MatchingFields{index.Owner: string(pool.UID)})
	if err != nil {
		return nil, fmt.Errorf("list VMs: %w", err)
	}
	all := make([]*member, len(list.Items))
	for i := range list.Items {
		vm := &list.Items[i]
		all[i] = &member{vm: vm, index: indexOf(pool, vm.Name)}
		vmi := new(kubevirt.VirtualMachineInstance)
		switch err := r.client.Get(ctx, client.ObjectKeyFromObject(vm), vmi); {
		case err == nil && metav1.IsControlledBy(vmi, vm):
			all[i].vmi = vmi
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read VMI %s: %w", vm.Name, err)
		}
	}
	return all, nil
}

func nameOf(pool *vmPool, index int) string { return pool.Name + "-" + strconv.Itoa(index) }

func indexOf(pool *vmPool, name string) int {
	number, _ := strings.CutPrefix(name, pool.Name+"-")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || nameOf(pool, n) != name {
		return -1
	}
	return n
}

// rests reports whether a VM has stopped, and should not run.
func (m *member) rests() bool {
	return (m.vmi == nil || m.vmi.IsFinal()) && m.vm.Status.PrintableStatus == kubevirt.VirtualMachineStatusStopped
}

// available reports whether a VM's guest is ready and nothing is about to end it.
func (m *member) available() bool {
	if m.vmi == nil || m.vmi.DeletionTimestamp != nil || m.stops() {
		return false
	}
	for _, c := range m.vmi.Status.Conditions {
		if c.Type == kubevirt.VirtualMachineInstanceReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// stops reports whether the VM's instance was requested to stop.
func (m *member) stops() bool {
	for _, request := range m.vm.Status.StateChangeRequests {
		if request.Action == kubevirt.StopRequest && request.UID != nil && *request.UID == m.vmi.UID {
			return true
		}
	}
	return false
}
