package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/replicas"
)

// update brings the VMs that the pool's strategy selects up to date with its template,
// and replaces their instances if the strategy does.
func (r *Reconciler) update(ctx context.Context, w *work) error {
	policy, updates, replaces := updatePolicy(w.pool)
	if !updates {
		return nil
	}
	present := revisionName(w.pool)
	isOld := func(m *member) bool { return m.vm.Labels[kubevirt.VirtualMachinePoolRevisionName] != present }
	var behind []*member
	for _, m := range w.active {
		if m.index >= 0 && (isOld(m) || replaces && m.outdated()) {
			behind = append(behind, m)
		}
	}
	chosen, err := r.selection.selected(ctx, behind, policy)
	if err != nil {
		return err
	}
	old := slices.DeleteFunc(slices.Clone(chosen), func(m *member) bool { return !isOld(m) })
	if err := r.updateVMs(ctx, w, old); err != nil || !replaces {
		return err
	}
	order(chosen, policy)
	return r.replaceInstances(ctx, w, chosen)
}

func (r *Reconciler) updateVMs(ctx context.Context, w *work, old []*member) error {
	if len(old) == 0 {
		return nil
	}
	if err := r.templates.keep(ctx, w.pool); err != nil {
		return err
	}
	formers := map[string]*revision{}
	for _, m := range old {
		w.unused = append(w.unused, m.revisions()...)
		name := m.vm.Labels[kubevirt.VirtualMachinePoolRevisionName]
		if _, known := formers[name]; known {
			continue
		}
		former, err := r.templates.former(ctx, w.pool, name)
		if err != nil {
			return err
		}
		formers[name] = former
	}
	return replicas.Each(old, func(m *member) error {
		before := m.vm.DeepCopy()
		bringUpToDate(w.pool, m, formers[m.vm.Labels[kubevirt.VirtualMachinePoolRevisionName]])
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.client.Patch(ctx, m.vm, patch); err != nil {
			return client.IgnoreNotFound(fmt.Errorf("update VM %s: %w", m.vm.Name, err))
		}
		r.events.Eventf(w.pool, m.vm, corev1.EventTypeNormal, "SuccessfulUpdate", "Update", "Updated VM %s/%s", m.vm.Namespace, m.vm.Name)
		return nil
	})
}

// bringUpToDate changes a VM to what the pool's template makes. It leaves alone what
// the VM's user changed and the template did not: labels, annotations, the run
// strategy, and the spec if the former revision makes the same. Former is nil if it is
// unknown.
func bringUpToDate(pool *vmPool, m *member, former *revision) {
	next, vm, name := revisionOf(pool), m.vm, revisionName(pool)
	var were metav1.ObjectMeta
	if former != nil {
		were = former.Template.ObjectMeta
	}
	vm.Labels = overlay(vm.Labels, were.Labels, next.Template.ObjectMeta.Labels)
	vm.Annotations = overlay(vm.Annotations, were.Annotations, next.Template.ObjectMeta.Annotations)
	metav1.SetMetaDataLabel(&vm.ObjectMeta, kubevirt.VirtualMachinePoolRevisionName, name)
	if former != nil && former.sameVM(next) {
		return
	}
	spec := specOf(pool, m.index)
	if former != nil && former.sameStrategy(next) {
		spec.Running, spec.RunStrategy = vm.Spec.Running, vm.Spec.RunStrategy
	}
	switch {
	case former != nil && former.sameInstance(next):
		spec.Template = vm.Spec.Template.DeepCopy()
	case spec.Template != nil:
		keepIdentity(vm.Spec.Template, spec.Template)
		metav1.SetMetaDataLabel(&spec.Template.ObjectMeta, kubevirt.VirtualMachinePoolRevisionName, name)
	}
	var made *kubevirt.VirtualMachineSpec
	if former != nil {
		made = new(former.specOf(pool, m.index))
	}
	keepDisks(&vm.Spec, &spec, made)
	vm.Spec = spec
}

// overlay returns labels or annotations with those of a template in place of those of
// its former revision.
func overlay(have, were, now map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range have {
		if _, was := were[key]; !was {
			all[key] = value
		}
	}
	maps.Copy(all, now)
	return all
}

// keepIdentity keeps the UUID and the serial number by which a guest knows its VM.
func keepIdentity(have, next *kubevirt.VirtualMachineInstanceTemplateSpec) {
	if have == nil || have.Spec.Domain.Firmware == nil {
		return
	}
	was := have.Spec.Domain.Firmware
	if next.Spec.Domain.Firmware == nil {
		if was.UUID == "" && was.Serial == "" {
			return
		}
		next.Spec.Domain.Firmware = new(kubevirt.Firmware)
	}
	f := next.Spec.Domain.Firmware
	if f.UUID == "" {
		f.UUID = was.UUID
	}
	if f.Serial == "" {
		f.Serial = was.Serial
	}
}

// outdated reports whether a VM's instance was made from another revision than the
// VM's next one will be.
func (m *member) outdated() bool {
	if m.vmi == nil || m.vmi.DeletionTimestamp != nil || m.vmi.IsFinal() || m.vm.Spec.Template == nil || m.stops() {
		return false
	}
	const revision = kubevirt.VirtualMachinePoolRevisionName
	return m.vmi.Labels[revision] != m.vm.Spec.Template.ObjectMeta.Labels[revision]
}

// replaceInstances ends outdated instances, in order, as far as enough VMs stay
// available. An instance that is not available costs none of them.
func (r *Reconciler) replaceInstances(ctx context.Context, w *work, chosen []*member) error {
	up := 0
	for _, m := range w.active {
		if m.available() || m.rests() {
			up++
		}
	}
	left := mayBeUnavailable(w.pool) - (replicas.Wanted(w.pool.Spec.Replicas) - up)
	var now []*member
	for _, m := range chosen {
		if !m.outdated() {
			continue
		}
		if m.available() {
			if left <= 0 {
				continue
			}
			left--
		}
		now = append(now, m)
	}
	return replicas.Each(now, func(m *member) error { return r.replaceInstance(ctx, w.pool, m) })
}

// replaceInstance ends a VM's instance so that another one follows. No instance
// follows that of a VM that runs once, which is left alone.
func (r *Reconciler) replaceInstance(ctx context.Context, pool *vmPool, m *member) error {
	strategy, err := m.vm.RunStrategy()
	if err != nil {
		return fmt.Errorf("VM %s: %w", m.vm.Name, err)
	}
	switch strategy {
	case kubevirt.RunStrategyAlways:
		err = r.client.Delete(ctx, m.vmi, client.Preconditions{UID: &m.vmi.UID})
	case kubevirt.RunStrategyManual, kubevirt.RunStrategyRerunOnFailure:
		if len(m.vm.Status.StateChangeRequests) > 0 {
			return nil // the VM's controller acts on another one
		}
		before := m.vm.DeepCopy()
		m.vm.Status.StateChangeRequests = []kubevirt.VirtualMachineStateChangeRequest{
			{Action: kubevirt.StopRequest, UID: &m.vmi.UID}, {Action: kubevirt.StartRequest},
		}
		err = r.client.Status().Patch(ctx, m.vm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	default:
		return nil
	}
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("replace VMI %s: %w", m.vmi.Name, err))
	}
	r.events.Eventf(pool, m.vm, corev1.EventTypeNormal, "SuccessfulUpdate", "Restart",
		"Restarting VM %s/%s: its instance is of a former revision of the pool", m.vm.Namespace, m.vm.Name)
	return nil
}
