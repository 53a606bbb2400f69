package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/replicas"
)

// shrink deletes the VMs that must be replaced, and those that are too many.
func (r *Reconciler) shrink(ctx context.Context, w *work) error {
	sick := r.sick(w)
	w.leave(sick)
	how := scaleInOf(w.pool)
	surplus, err := r.surplus(ctx, w, how)
	if err != nil {
		return err
	}
	w.leave(surplus)
	err = replicas.Each(sick, func(m *member) error { return r.replaceSick(ctx, w, m) })
	if err != nil {
		return err
	}
	return replicas.Each(surplus, func(m *member) error {
		if how.preserves {
			if err := r.preserve(ctx, w.pool, m); err != nil {
				return err
			}
		}
		return r.remove(ctx, w.pool, m.vm)
	})
}

// preserve has a VM's disks outlive it.
func (r *Reconciler) preserve(ctx context.Context, pool *vmPool, m *member) error {
	former, err := r.templates.former(ctx, pool, m.vm.Labels[kubevirt.VirtualMachinePoolRevisionName])
	if err != nil {
		return err
	}
	if former == nil {
		former = new(revisionOf(pool))
	}
	return r.disks.preserve(ctx, pool, m.vm, new(former.specOf(pool, m.index)))
}

// leave moves VMs from the active ones to those that leave.
func (w *work) leave(all []*member) {
	w.active = slices.DeleteFunc(slices.Clone(w.active), func(m *member) bool { return slices.Contains(all, m) })
	w.leaving = append(w.leaving, all...)
	for _, m := range all {
		w.unused = append(w.unused, m.revisions()...)
	}
}

// surplus returns the VMs to remove, as far as the pool's strategy permits: none if the pool has changed since the cache
// saw it.
func (r *Reconciler) surplus(ctx context.Context, w *work, how scaleIn) ([]*member, error) {
	n := len(w.active) - replicas.Wanted(w.pool.Spec.Replicas)
	if n <= 0 || how.never {
		return nil, nil
	}
	if same, err := replicas.Unchanged(ctx, r.live, w.pool); err != nil || !same {
		return nil, err // the pool's event triggers the next step
	}
	candidates := slices.Clone(w.active)
	if how.resting {
		candidates = slices.DeleteFunc(candidates, func(m *member) bool { return !m.rests() })
	}
	candidates, err := r.selection.selected(ctx, candidates, how.policy)
	if err != nil {
		return nil, err
	}
	order(candidates, how.policy)
	return candidates[:min(n, len(candidates))], nil
}

// remove deletes this VM, and no later one of its name.
func (r *Reconciler) remove(ctx context.Context, pool *vmPool, vm *kubevirt.VirtualMachine) error {
	err := r.client.Delete(ctx, vm, client.Preconditions{UID: &vm.UID})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.events.Eventf(pool, vm, corev1.EventTypeWarning, "FailedDelete", "Delete", "Error deleting VM %s/%s: %v", vm.Namespace, vm.Name, err)
		return fmt.Errorf("delete VM %s: %w", vm.Name, err)
	}
	r.events.Eventf(pool, vm, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "Deleted VM %s/%s with uid %s from pool", vm.Namespace, vm.Name, vm.UID)
	return nil
}

// grow creates the missing VMs. A VM that is being deleted is not missing: its
// successor gets its name.
func (r *Reconciler) grow(ctx context.Context, w *work) error {
	missing := replicas.Wanted(w.pool.Spec.Replicas) - len(w.active) - len(w.leaving)
	if missing <= 0 {
		return nil
	}
	// A pool that is being deleted, which the cache may not know yet, replaces no VM.
	if exists, err := replicas.Exists(ctx, r.live, w.pool); err != nil || !exists {
		return err
	}
	indexes, err := r.freeIndexes(ctx, w, min(missing, replicas.Most))
	if err != nil || len(indexes) == 0 {
		return err
	}
	if err := r.templates.keep(ctx, w.pool); err != nil {
		return err
	}
	w.made, err = replicas.Create(indexes, func(index int) error { return r.create(ctx, w.pool, index) })
	return err
}

func (r *Reconciler) create(ctx context.Context, pool *vmPool, index int) error {
	vm := newVM(pool, index)
	if err := r.disks.reuse(ctx, pool, vm); err != nil {
		return err
	}
	if err := r.client.Create(ctx, vm); err != nil {
		r.events.Eventf(pool, nil, corev1.EventTypeWarning, "FailedCreate", "Create", "Error creating VM %s/%s: %v", vm.Namespace, vm.Name, err)
		return fmt.Errorf("create VM %s: %w", vm.Name, err)
	}
	r.events.Eventf(pool, vm, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "Created VM %s/%s", vm.Namespace, vm.Name)
	return nil
}

// collection is about how long the garbage collector takes.
const collection = 2 * time.Second

// freeIndexes returns the lowest numbers with which no VM is named, its owner and
// state aside. A number keeps its place while the garbage collector removes the former
// VM's disks.
func (r *Reconciler) freeIndexes(ctx context.Context, w *work, n int) ([]int, error) {
	taken := map[int]bool{}
	for _, m := range slices.Concat(w.active, w.leaving) {
		taken[m.index] = true
	}
	var free []int
	for index := 0; len(free) < n; index++ {
		if err := ctx.Err(); err != nil { // the cache does not look at it
			return nil, err
		}
		if taken[index] {
			continue
		}
		key := client.ObjectKey{Namespace: w.pool.Namespace, Name: nameOf(w.pool, index)}
		err := r.client.Get(ctx, key, new(kubevirt.VirtualMachine), client.DisableReadYourWritesConsistency) // the list has waited
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("look for a name: %w", err)
		}
		left, err := r.disks.left(ctx, w.pool, index)
		if err != nil {
			return nil, err
		}
		if left {
			n--
			w.lookAfter(collection)
			continue
		}
		free = append(free, index)
	}
	return free, nil
}
