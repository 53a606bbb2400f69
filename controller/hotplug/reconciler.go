package hotplug

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// Guests knows the instances' VMs; package vmi's Reconciler.
type Guests interface {
	// Guest returns an instance's VM.
	Guest(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (Guest, error)
	// Ended reports whether the VM of an instance's pod has ended; nil is a pod that is gone.
	Ended(ctx context.Context, p *corev1.Pod) (bool, error)
	// Reserve returns the PVC of an instance's volume that no other instance uses, and a
	// function that ends the instance's turn with it. In place of both it returns why the
	// instance can't use the PVC.
	Reserve(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, volume string) (pod.PVCObjects, func(), *Refusal, error)
}

// Guest is the VM of an instance.
type Guest struct {
	// Pod is nil if there is none.
	Pod *corev1.Pod
	// Running says that the VM can get and lose disks, Ended that it never will run again.
	Running, Ended bool
}

// Refusal is why an instance can't use a PVC.
type Refusal struct {
	Reason, Message string
	// Again is when to look again; 0 for when an object changes.
	Again time.Duration
}

// Nodes gives orders to VMs; [control.Client].
type Nodes interface {
	Control(ctx context.Context, p *corev1.Pod, most int, name string, arguments ...string) ([]byte, error)
}

// Reconciler attaches and detaches the hot-plugged volumes of instances.
type Reconciler struct {
	// Client reads from the cache and must wait there for its own writes.
	Client client.Client
	Guests Guests
	Nodes  Nodes
	// Events reach the users of instances.
	Events events.EventRecorder
	// Holder is the image of attachment pods.
	Holder pod.Holder
	// Now is the time; a test may have its own.
	Now func() time.Time
}

// Reconcile takes the next step for the volumes of an instance.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := r.Client.Get(ctx, req.NamespacedName, vmi); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the VM's pod owns its attachment pods
	}
	if is, err := r.concerned(ctx, vmi); err != nil || !is {
		return ctrl.Result{}, err
	}
	guest, err := r.Guests.Guest(ctx, vmi)
	if err != nil || guest.Pod == nil {
		return ctrl.Result{}, err
	}
	pods, err := Attachments(ctx, r.Client, guest.Pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	w := &work{Reconciler: r, vmi: vmi, own: guest.Pod}
	for _, p := range pods {
		if pod.HeldCard(&p) != "" {
			w.cards = append(w.cards, p)
		} else {
			w.pods = append(w.pods, p)
		}
	}
	left := w.leave(ctx)
	switch {
	case guest.Ended:
		return ctrl.Result{}, errors.Join(left, w.deletePods(ctx, pods))
	case !guest.Running:
		return ctrl.Result{}, left // an event of the instance or its pod triggers the next step
	}
	again, err := each([]step{w.all, w.grow, cards{w}.step, links{w}.step}, func(do step) (time.Duration, error) { return do(ctx) })
	return ctrl.Result{RequeueAfter: again}, errors.Join(left, err)
}

// step takes the next step for some of an instance's devices, and returns when to look again; 0 for when an object
// changes.
type step func(ctx context.Context) (time.Duration, error)

// each takes a step for each one of all, also after an error: a volume that fails keeps no other one waiting. It
// returns the shortest wait, and all errors. A conflict ends it, since the rest would be decided on old objects.
func each[T any](all []T, do func(T) (time.Duration, error)) (time.Duration, error) {
	var again time.Duration
	var errs []error
	for _, one := range all {
		wait, err := do(one)
		if errs = append(errs, err); apierrors.IsConflict(err) {
			break
		}
		again = sooner(again, wait)
	}
	return again, errors.Join(errs...)
}

// sooner returns the shorter of two waits; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// concerned reports whether an instance may have hot-plugged volumes or network cards, volumes that grow, or links
// to set.
func (r *Reconciler) concerned(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (bool, error) {
	if setsLinks(vmi) || hasVolumes(vmi) || hasCards(vmi) {
		return true, nil
	}
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(vmi.Namespace), client.MatchingFields{indexAttached: vmi.Name})
	if err != nil {
		return false, fmt.Errorf("list attachment pods of VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return len(pods.Items) > 0, nil
}

func hasVolumes(vmi *kubevirt.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Spec.Volumes, func(v kubevirt.Volume) bool { return pod.Hotpluggable(&v) || pod.GivenImage(vmi, &v) }) ||
		slices.ContainsFunc(vmi.Status.VolumeStatus, func(s kubevirt.VolumeStatus) bool {
			return s.HotplugVolume != nil || s.PersistentVolumeClaimInfo != nil
		})
}

// Attachments returns the attachment pods of a VM's pod.
func Attachments(ctx context.Context, from client.Reader, own *corev1.Pod) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := from.List(ctx, &pods, client.InNamespace(own.Namespace), client.MatchingFields{indexAttachment: string(own.UID)})
	if err != nil {
		return nil, fmt.Errorf("list attachment pods of pod %s/%s: %w", own.Namespace, own.Name, err)
	}
	return pods.Items, nil
}

// work is what there is to do for one instance.
type work struct {
	*Reconciler
	vmi *kubevirt.VirtualMachineInstance
	own *corev1.Pod
	// pods are the attachment pods with volumes, cards those with networks of cards.
	pods, cards []corev1.Pod
}

// all takes the next step for each volume, and returns when to look again; 0 for when an
// object changes.
func (w *work) all(ctx context.Context) (time.Duration, error) {
	wanted := pod.Plugged(w.vmi, w.own)
	names := slices.Clone(wanted)
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, s := range w.vmi.Status.VolumeStatus {
		if s.HotplugVolume != nil {
			add(s.Name)
		}
	}
	for i := range w.pods {
		add(pod.Held(&w.pods[i]).Name)
	}
	return each(names, func(name string) (time.Duration, error) {
		if copied(w.vmi, w.own, name) {
			return 0, nil
		}
		v := w.volume(name)
		if slices.Contains(wanted, name) && !w.replaced(v) {
			return w.attach(ctx, v)
		}
		return w.detach(ctx, v)
	})
}

// copied reports whether the VM has a disk on the PVC to which a migration has copied it. The instance's spec follows
// soon, and names the former PVC until then.
func copied(vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod, name string) bool {
	return pod.IsAtDestinations(vmi, own) &&
		slices.ContainsFunc(vmi.Status.MigratedVolumes, func(m kubevirt.StorageMigratedVolumeInfo) bool { return m.VolumeName == name })
}

// volume is one of an instance's, with what there is of it.
type volume struct {
	name string
	// status is what the instance reports.
	status kubevirt.VolumeStatus
	// live is the attachment pod; nil if there is none. Former are those that go.
	live   *corev1.Pod
	former []corev1.Pod
}

func (w *work) volume(name string) *volume {
	v := &volume{name: name, status: kubevirt.VolumeStatus{Name: name}}
	if at := w.at(name); at >= 0 {
		v.status = *w.vmi.Status.VolumeStatus[at].DeepCopy()
	}
	if v.status.HotplugVolume == nil {
		v.status.HotplugVolume = new(kubevirt.HotplugVolumeStatus)
	}
	if spec := pod.VolumeOf(&w.vmi.Spec, name); spec != nil && spec.MemoryDump != nil && !v.dumps() {
		v.status.MemoryDumpVolume = &kubevirt.DomainMemoryDumpInfo{ClaimName: spec.MemoryDump.ClaimName}
	}
	for i := range w.pods {
		p := &w.pods[i]
		switch {
		case pod.Held(p).Name != name:
		case p.DeletionTimestamp != nil || ended(p):
			v.former = append(v.former, *p)
		default:
			v.live = p
		}
	}
	return v
}

// at returns the place of a volume in the instance's status; -1 for none.
func (w *work) at(name string) int {
	return slices.IndexFunc(w.vmi.Status.VolumeStatus, func(s kubevirt.VolumeStatus) bool { return s.Name == name })
}

// replaced reports whether the instance names another PVC or image for a volume than the VM has.
func (w *work) replaced(v *volume) bool {
	var claim string
	for _, use := range pod.PVCs(&w.vmi.Spec) {
		if use.Volume == v.name {
			claim = use.Name
		}
	}
	if v.live != nil {
		has := pod.Held(v.live)
		return has.PVC != claim || has.Image() != imageOf(&w.vmi.Spec, v.name)
	}
	info := v.status.PersistentVolumeClaimInfo
	return v.status.HotplugVolume.AttachPodName != "" && info != nil && info.ClaimName != claim
}

// imageOf returns the name of the image of a registry disk; "" for another volume.
func imageOf(s *kubevirt.VirtualMachineInstanceSpec, volume string) string {
	if v := pod.VolumeOf(s, volume); v != nil && v.ContainerDisk != nil {
		return v.ContainerDisk.Image
	}
	return ""
}

// ended reports whether an attachment pod never will hold its volume again.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// deletePods deletes attachment pods.
func (w *work) deletePods(ctx context.Context, pods []corev1.Pod) error {
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		err := w.Client.Delete(ctx, p, client.Preconditions{UID: &p.UID})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			w.Events.Eventf(w.vmi, nil, corev1.EventTypeWarning, "FailedDelete", "Hotplug", "Failed to delete attachment pod %s", p.Name)
			return fmt.Errorf("delete attachment pod %s: %w", p.Name, err)
		}
		w.Events.Eventf(w.vmi, nil, corev1.EventTypeNormal, "SuccessfulDelete", "Hotplug", "Deleted attachment pod %s", p.Name)
	}
	return nil
}
