package vmi

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// strays ends the pods of a name that are not the present instance's one with its guest.
type strays struct {
	client client.Client
	live   client.Reader
	now    func() time.Time
	views  viewer
	ends   ender
}

// keeps reports whether a pod of the instance is the one with its guest, or the target of
// a migration that has not ended.
func keeps(vmi *kubevirt.VirtualMachineInstance, name string) bool {
	return name == pod.Current(vmi) || Migrating(vmi) && name == vmi.Status.MigrationState.TargetPod
}

// farewell is how long the source of a migration that has succeeded has to end by itself.
const farewell = time.Minute

// endOthers ends the instance's pods without its guest: the source of a migration that
// has succeeded, and the target of one that has failed. With a deleted or ended instance
// all of them end. It returns when to look again; 0 for when a pod changes.
func (s *strays) endOthers(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (time.Duration, error) {
	if vmi.Status.MigrationState == nil {
		return 0, nil
	}
	pods, err := s.others(ctx, vmi)
	if err != nil {
		return 0, err
	}
	var again time.Duration
	for i := range pods {
		wait, err := s.endOther(ctx, vmi, &pods[i])
		if err != nil {
			return 0, err
		}
		again = sooner(again, wait)
	}
	return again, nil
}

func (s *strays) endOther(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) (time.Duration, error) {
	v, err := s.views.look(ctx, p)
	if err != nil {
		return 0, err
	}
	over := vmi.DeletionTimestamp != nil || vmi.IsFinal()
	if p.DeletionTimestamp == nil && (over || !keeps(vmi, p.Name)) {
		m := vmi.Status.MigrationState
		if !over && !v.ended() && p.Name == m.SourcePod && m.EndTimestamp != nil {
			if left := farewell - s.now().Sub(m.EndTimestamp.Time).Abs(); left > 0 {
				return left, nil
			}
		}
		current := new(kubevirt.VirtualMachineInstance)
		err := s.live.Get(ctx, client.ObjectKeyFromObject(vmi), current)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("read VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
		}
		if err == nil && current.UID == vmi.UID && !over && keeps(current, p.Name) {
			return 0, nil // the cache is behind
		}
		if err := s.ends.deletePod(ctx, p); err != nil {
			return 0, err
		}
		return 0, nil // the pod's event triggers the next step
	}
	if over || !keeps(vmi, p.Name) {
		return v.again, s.ends.release(ctx, v)
	}
	return 0, nil
}

// others returns the instance's pods beside that with its guest.
func (s *strays) others(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingFields{indexInstance: vmi.Name}); err != nil {
		return nil, fmt.Errorf("list pods of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	var all []corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if from, _ := originOf(p); from.uid == vmi.UID && p.Name != pod.Current(vmi) {
			all = append(all, *p)
		}
	}
	return all, nil
}

// othersExist reports whether the API server still has one of those pods. The cache may
// have lost the label of one.
func (s *strays) othersExist(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (bool, error) {
	if vmi.Status.MigrationState == nil {
		return false, nil
	}
	var pods corev1.PodList
	err := s.live.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingLabels{kubevirt.CreatedByLabel: string(vmi.UID)}, client.Limit(1))
	if err != nil {
		return false, fmt.Errorf("list pods of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return len(pods.Items) > 0, nil
}

// settlePrevious ends and releases the pods of earlier instances of a name, which
// were removed in spite of their finalizer. It returns the name of a pod that has not
// ended, "" if there is none, and when to look again, 0 for when a pod changes. Vmi is the present instance; nil for
// none.
func (s *strays) settlePrevious(
	ctx context.Context, key types.NamespacedName, vmi *kubevirt.VirtualMachineInstance,
) (running string, again time.Duration, err error) {
	var pods corev1.PodList
	err = s.client.List(ctx, &pods, client.InNamespace(key.Namespace),
		client.MatchingFields{indexInstance: key.Name}, client.DisableReadYourWritesConsistency)
	if err != nil {
		return "", 0, fmt.Errorf("list pods of VMI %s: %w", key, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if from, _ := originOf(p); vmi != nil && from.uid == vmi.UID {
			continue
		}
		ended, wait, err := s.settle(ctx, key, p)
		if err != nil {
			return "", 0, err
		}
		again = sooner(again, wait)
		if !ended {
			running = p.Name
		}
	}
	return running, again, nil
}

// settle reports whether an orphaned pod has ended, and deletes it if it has not. It returns when to look again; 0 for
// when the pod changes.
func (s *strays) settle(ctx context.Context, key types.NamespacedName, p *corev1.Pod) (ended bool, again time.Duration, err error) {
	current := new(kubevirt.VirtualMachineInstance)
	from, _ := originOf(p)
	switch err := s.live.Get(ctx, key, current); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return false, 0, fmt.Errorf("read VMI %s: %w", key, err)
	case current.UID == from.uid:
		return false, 0, nil // the cache of VMIs is behind that of pods
	}
	v, err := s.views.look(ctx, p)
	if err != nil {
		return false, 0, err
	}
	if p.DeletionTimestamp == nil {
		if err := s.ends.deletePod(ctx, p); err != nil {
			return false, 0, err
		}
		return v.ended(), v.again, nil
	}
	return v.ended(), v.again, s.ends.release(ctx, v)
}
