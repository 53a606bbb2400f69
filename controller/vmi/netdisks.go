package vmi

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// ReasonPVCNotBound says that an instance waits for the volume of a PVC.
const ReasonPVCNotBound = "PVCNotBound"

// networkDisks are the PVCs that QEMU opens over the network.
type networkDisks struct {
	client client.Client
	live   client.Reader
	// enabled is [Options].NetworkDisks.
	enabled bool
	pvcs    holders
}

// holders returns who else uses storage; [pvcAccess].
type holders interface {
	holder(
		ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pods []corev1.Pod, shares func(*corev1.Pod) (bool, error),
	) (*corev1.Pod, error)
}

// find returns the instance's PVCs that QEMU opens over the network. Only the
// volume of a PVC says whether it is one. So an instance waits until its PVCs are bound,
// but for those that Kubernetes binds when a pod uses them: the kubelet mounts these.
func (n *networkDisks) find(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, pvcs pod.PVCObjects,
) (pod.NetworkDisks, *trouble, error) {
	all := pod.NetworkDisks{}
	if !n.enabled {
		return all, nil, nil
	}
	for _, use := range pod.PVCs(&vmi.Spec) {
		pvc := pvcs[use.Name]
		if pvc == nil {
			continue // pod.New reports it
		}
		pv, err := n.volumeOf(ctx, pvc)
		if err != nil {
			return nil, nil, err
		}
		if pv == nil {
			if late, err := n.bindsLate(ctx, pvc); err != nil || late {
				if err != nil {
					return nil, nil, err
				}
				continue
			}
			return nil, &trouble{reason: ReasonPVCNotBound, unschedulable: true,
				message: fmt.Sprintf("PVC %s/%s is not bound to a volume; the instance starts when it is.", vmi.Namespace, use.Name)}, nil
		}
		disk, is, err := pod.NetworkDisk(use, pvc, pv)
		switch {
		case err != nil:
			t := failedCreate(fmt.Errorf("volume %s: %w", use.Volume, err))
			t.poll = true
			return nil, t, nil
		case is && slices.ContainsFunc(disk.Keys(), func(key string) bool { return slices.Contains(targetKeys(all), key) }):
			return nil, failedCreate(fmt.Errorf("volume %s: another volume of the instance is the same disk: %s", use.Volume, disk)), nil
		case is:
			all[use.Volume] = disk
		}
	}
	return all, nil, nil
}

// volumeOf returns the volume that a PVC is bound to; nil if there is none. A PVC may name
// any volume: the volume decides.
func (n *networkDisks) volumeOf(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if pvc.Spec.VolumeName == "" || pvc.Status.Phase != corev1.ClaimBound {
		return nil, nil
	}
	pv := new(corev1.PersistentVolume)
	err := n.live.Get(ctx, client.ObjectKey{Name: pvc.Spec.VolumeName}, pv)
	if err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("read PersistentVolume %s of PVC %s/%s: %w", pvc.Spec.VolumeName, pvc.Namespace, pvc.Name, err))
	}
	if ref := pv.Spec.ClaimRef; ref == nil || ref.Namespace != pvc.Namespace || ref.Name != pvc.Name || ref.UID != pvc.UID {
		return nil, nil
	}
	return pv, nil
}

// bindsLate reports whether Kubernetes binds a PVC only when a pod uses it.
func (n *networkDisks) bindsLate(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (bool, error) {
	name := pvc.Spec.StorageClassName
	if name == nil || *name == "" || pvc.Spec.VolumeName != "" {
		return false, nil
	}
	class := new(storagev1.StorageClass)
	if err := n.live.Get(ctx, client.ObjectKey{Name: *name}, class); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("read StorageClass %s of PVC %s/%s: %w", *name, pvc.Namespace, pvc.Name, err)
	}
	mode := class.VolumeBindingMode
	return mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer, nil
}

// targetUser returns why an instance can't use its network disks yet; nil if it can. Two
// PersistentVolumes, in two namespaces even, may be one disk: a PVC alone does not say
// who uses it.
func (n *networkDisks) targetUser(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, disks pod.NetworkDisks) (*trouble, error) {
	for _, volume := range slices.Sorted(maps.Keys(disks)) {
		disk := disks[volume]
		for _, key := range disk.Keys() {
			var pods corev1.PodList
			if err := n.client.List(ctx, &pods, client.MatchingFields{indexTarget: key}); err != nil {
				return nil, fmt.Errorf("list pods with %s: %w", key, err)
			}
			user, err := n.pvcs.holder(ctx, vmi, pods.Items, func(p *corev1.Pod) (bool, error) { return sharesTarget(p, disk, key), nil })
			if err != nil {
				return nil, err
			}
			if user == nil {
				continue
			}
			from, _ := originOf(user)
			return &trouble{reason: ReasonPVCInUse, poll: true,
				message: fmt.Sprintf("%s is in use by instance %s/%s (pod %s), over another PVC; stop that one, or use another disk.",
					disk, user.Namespace, from.name, user.Name)}, nil
		}
	}
	return nil, nil
}

// sharesTarget reports whether a pod uses a network disk in a way that lets another
// instance use the disk, too.
func sharesTarget(p *corev1.Pod, disk vmspec.NetworkDisk, key string) bool {
	for _, other := range networkDisksOf(p) {
		together := other.Shared && disk.Shared || other.ReadOnly && disk.ReadOnly
		if slices.Contains(other.Keys(), key) && !together {
			return false
		}
	}
	return true
}

// networkDisksOf returns the network disks of a pod. Only the controller sets the
// annotation; a pod with another text has none.
func networkDisksOf(p *corev1.Pod) map[string]vmspec.NetworkDisk {
	text, ok := p.Annotations[vmspec.AnnotationNetworkDisks]
	if !ok {
		return nil
	}
	all, err := vmspec.ParseNetworkDisks(text)
	if err != nil {
		return nil
	}
	return all
}

// targetsOf returns the keys of a pod's network disks, for the index.
func targetsOf(p *corev1.Pod) []string {
	var keys []string
	for _, disk := range networkDisksOf(p) {
		keys = append(keys, disk.Keys()...)
	}
	return keys
}

// targetKeys are what identifies network disks, for turns.
func targetKeys(disks pod.NetworkDisks) []string {
	var keys []string
	for _, disk := range disks {
		keys = append(keys, disk.Keys()...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
