package replicaset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/replicas"
)

// maxName is the length of a label's value: an instance's name is one of its pod's.
const maxName = 63

// create makes n instances beside those that are known. It returns how many it made.
func (r *Reconciler) create(ctx context.Context, set *replicaSet, known []*instance, n int) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	names, err := r.freeNames(ctx, set, known, min(n, replicas.Most))
	if err != nil {
		return 0, err
	}
	return replicas.Create(names, func(name string) error { return r.createOne(ctx, set, name) })
}

func (r *Reconciler) createOne(ctx context.Context, set *replicaSet, name string) error {
	vmi := fromTemplate(set, name)
	if err := r.Client.Create(ctx, vmi); err != nil {
		r.Events.Eventf(set, nil, corev1.EventTypeWarning, "FailedCreate", "Start",
			"Error creating virtual machine instance: %v", err)
		return fmt.Errorf("create VMI %s: %w", name, err)
	}
	r.Events.Eventf(set, vmi, corev1.EventTypeNormal, "SuccessfulCreate", "Start",
		"Started the virtual machine by creating the new virtual machine instance %s", name)
	return nil
}

// freeNames returns the first names of the set's that no instance has, n of them, or fewer: an instance
// that is not among the known has been made since, by another controller, and is one that isn't missing.
func (r *Reconciler) freeNames(ctx context.Context, set *replicaSet, known []*instance, n int) ([]string, error) {
	var names []string
	for number := 0; len(names) < n; number++ {
		if err := ctx.Err(); err != nil { // the cache does not look at it
			return nil, err
		}
		name := pod.UniqueName(set.Name, maxName, string(set.UID)+"/"+strconv.Itoa(number))
		have := new(instance)
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: name}, have,
			client.DisableReadYourWritesConsistency) // the list has waited
		switch {
		case apierrors.IsNotFound(err):
			names = append(names, name)
		case err != nil:
			return nil, fmt.Errorf("look for a name: %w", err)
		case metav1.IsControlledBy(have, set) && !slices.ContainsFunc(known, func(k *instance) bool { return k.UID == have.UID }):
			n--
		}
	}
	return names, nil
}

// fromTemplate returns an instance that the set's template makes.
func fromTemplate(set *replicaSet, name string) *instance {
	t := set.Spec.Template
	return &instance{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       set.Namespace,
			Labels:          maps.Clone(t.ObjectMeta.Labels),
			Annotations:     maps.Clone(t.ObjectMeta.Annotations),
			Finalizers:      []string{kubevirt.VirtualMachineInstanceFinalizer},
			OwnerReferences: []metav1.OwnerReference{ownerReference(set)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

// remove deletes those very instances, unless the set has changed since the cache saw it.
func (r *Reconciler) remove(ctx context.Context, set *replicaSet, all []*instance) error {
	if len(all) == 0 {
		return nil
	}
	if same, err := replicas.Unchanged(ctx, r.Live, set); err != nil || !same {
		return err // the set's event triggers the next step
	}
	return replicas.Each(all, func(vmi *instance) error { return r.removeOne(ctx, set, vmi) })
}

func (r *Reconciler) removeOne(ctx context.Context, set *replicaSet, vmi *instance) error {
	err := r.Client.Delete(ctx, vmi, client.Preconditions{UID: &vmi.UID})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.Events.Eventf(set, vmi, corev1.EventTypeWarning, "FailedDelete", "Stop",
			"Error deleting virtual machine instance %s: %v", vmi.Name, err)
		return fmt.Errorf("delete VMI %s: %w", vmi.Name, err)
	}
	format := "Stopped the virtual machine by deleting the virtual machine instance %s with UID %s"
	if vmi.IsFinal() {
		format = "Deleted finished virtual machine instance %s with UID %s"
	}
	r.Events.Eventf(set, vmi, corev1.EventTypeNormal, "SuccessfulDelete", "Stop", format, vmi.Name, vmi.UID)
	return nil
}
