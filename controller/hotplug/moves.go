package hotplug

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// Moves has the nodes of migrations' targets mount the volumes that the VMs have got, for package
// migration: the target's pod has attachment pods beside those of the source's. Whichever pod keeps the
// guest keeps its attachment pods.
type Moves struct {
	Client client.Client
	Events events.EventRecorder
	Holder pod.Holder
}

// Attach creates the target's attachment pods that are missing: for the volumes that the instance reports
// as attached, and for some that the source's node names. It returns the containers that hold the
// volumes, by the volumes' names, and which volume the target's node has not mounted yet; "" for none.
func (m *Moves) Attach(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, source, target *corev1.Pod, named ...string,
) (containers map[string]string, waits string, err error) {
	wanted := moving(vmi, named)
	if len(wanted) == 0 {
		return nil, "", nil
	}
	from, err := Attachments(ctx, m.Client, source)
	if err != nil {
		return nil, "", err
	}
	have, err := Attachments(ctx, m.Client, target)
	if err != nil {
		return nil, "", err
	}
	containers = map[string]string{}
	for _, s := range wanted {
		p := holderOf(have, s.Name)
		switch {
		case p == nil:
			why, err := m.create(ctx, vmi, target, s, holderOf(from, s.Name))
			if err != nil {
				return nil, "", err
			}
			waits = fmt.Sprintf("volume %s: %s", s.Name, why)
		case p.DeletionTimestamp != nil || ended(p):
			waits = fmt.Sprintf("volume %s: attachment pod %s has ended", s.Name, p.Name)
		case pod.HolderOf(p) == "":
			waits = fmt.Sprintf("volume %s: attachment pod %s is pending", s.Name, p.Name)
			if c := pod.Unscheduled(p); c != nil {
				waits += ": " + clip(c.Message)
			}
		default:
			containers[s.Name] = pod.HolderOf(p)
		}
	}
	for _, name := range named {
		if !slices.ContainsFunc(wanted, func(s kubevirt.VolumeStatus) bool { return s.Name == name }) {
			return nil, fmt.Sprintf("volume %s: the VM has it, and the instance does not report it", clip(name)), nil
		}
	}
	return containers, waits, nil
}

// moving returns the volumes that the VM has got, and the reported ones of some names.
func moving(vmi *kubevirt.VirtualMachineInstance, named []string) []kubevirt.VolumeStatus {
	return slices.DeleteFunc(slices.Clone(vmi.Status.VolumeStatus), func(s kubevirt.VolumeStatus) bool {
		return s.HotplugVolume == nil || s.MemoryDumpVolume != nil || s.Phase != kubevirt.VolumeReady && !slices.Contains(named, s.Name)
	})
}

// holderOf returns the attachment pod of a volume; nil if there is none.
func holderOf(pods []corev1.Pod, volume string) *corev1.Pod {
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return pod.Held(&p).Name == volume })
	if i < 0 {
		return nil
	}
	return &pods[i]
}

// create creates the target's attachment pod for a volume, and returns why it is not there.
func (m *Moves) create(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, target *corev1.Pod, s kubevirt.VolumeStatus, source *corev1.Pod,
) (string, error) {
	var pvc *corev1.PersistentVolumeClaim
	if s.PersistentVolumeClaimInfo != nil {
		claim := cmp.Or(pod.Copied(target)[s.Name], s.PersistentVolumeClaimInfo.ClaimName)
		pvc = new(corev1.PersistentVolumeClaim)
		err := m.Client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: claim}, pvc)
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("PVC %s does not exist", claim), nil
		}
		if err != nil {
			return "", fmt.Errorf("read PVC %s/%s: %w", vmi.Namespace, claim, err)
		}
	}
	p, err := pod.MovedAttachment(vmi, target, s.Name, pvc, source, m.Holder)
	if err != nil {
		return err.Error(), nil //nolint:nilerr // a retry would fail in the same way; the migration waits, and says why
	}
	switch err := m.Client.Create(ctx, p); {
	case apierrors.IsAlreadyExists(err): // the cache will have it
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return clip(err.Error()), nil
	case err != nil:
		m.Events.Eventf(vmi, nil, corev1.EventTypeWarning, reasonFailedCreate, "Hotplug", "Error creating attachment pod: %.900s", err.Error())
		return "", fmt.Errorf("create attachment pod %s: %w", p.Name, err)
	default:
		m.Events.Eventf(vmi, nil, corev1.EventTypeNormal, reasonCreated, "Hotplug", "Created attachment pod %s", p.Name)
	}
	return fmt.Sprintf("attachment pod %s is pending", p.Name), nil
}

// leave deletes the attachment pods of the instance's other pods that have ended: of the source of a
// migration that has succeeded, and the target of one that has not.
func (w *work) leave(ctx context.Context) error {
	if w.vmi.Status.MigrationState == nil {
		return nil
	}
	var all corev1.PodList
	err := w.Client.List(ctx, &all, client.InNamespace(w.vmi.Namespace), client.MatchingFields{indexAttached: w.vmi.Name})
	if err != nil {
		return fmt.Errorf("list attachment pods of VMI %s/%s: %w", w.vmi.Namespace, w.vmi.Name, err)
	}
	var left []corev1.Pod
	over := map[types.UID]bool{w.own.UID: false}
	for i := range all.Items {
		p := &all.Items[i]
		_, own, _ := pod.AttachedTo(p)
		if _, known := over[own]; !known {
			if over[own], err = w.over(ctx, p, own); err != nil {
				return err
			}
		}
		if over[own] {
			left = append(left, *p)
		}
	}
	return w.deletePods(ctx, left)
}

// over reports whether the VM of an attachment pod has ended.
func (w *work) over(ctx context.Context, p *corev1.Pod, own types.UID) (bool, error) {
	var of *corev1.Pod
	for _, owner := range p.OwnerReferences {
		if owner.UID != own {
			continue
		}
		of = new(corev1.Pod)
		err := w.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: owner.Name}, of)
		if apierrors.IsNotFound(err) || err == nil && of.UID != own {
			of = nil
		} else if err != nil {
			return false, fmt.Errorf("read pod %s/%s: %w", p.Namespace, owner.Name, err)
		}
	}
	return w.Guests.Ended(ctx, of)
}
