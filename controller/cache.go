package controller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/export"
	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/pool"
	"github.com/nodevirt/nodevirt/controller/share"
	"github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	hotplug "github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// caches returns what the controller holds in memory: the pods of instances, nodes,
// PVCs, ResourceQuotas, and the objects of our kinds, each without the fields that no reconciler reads. A trimmed
// object must not be written back whole: writes are patches.
func caches() cache.Options {
	pool := share.NewPool()
	objects := map[client.Object]cache.ByObject{
		new(corev1.Pod): {
			Label:     podSelector(),
			Transform: trimmed(pool, trimPod),
		},
		new(corev1.Node):                  {Transform: trimmed(pool, trimNode)},
		new(corev1.PersistentVolumeClaim): {Transform: trimmed(pool, trimPVC)},
		new(corev1.ResourceQuota):         {Transform: trimmed(pool, trimQuota)},
	}
	for _, k := range kinds.All() {
		if k.Cached {
			objects[k.Object()] = cache.ByObject{Transform: trimmed(pool, trimMeta)}
		}
	}
	return cache.Options{
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            cache.TransformStripManagedFields(),
		ByObject:                    objects,
	}
}

// podSelector selects the pods of instances, their attachment pods, and those of exports.
func podSelector() labels.Selector {
	r, err := labels.NewRequirement(kubevirt.AppLabel, selection.In, []string{pod.LabelValue, pod.AttachmentLabelValue, exportapi.App})
	if err != nil {
		return labels.Nothing() // only a bad constant makes that
	}
	return labels.NewSelector().Add(*r)
}

// trimmed makes a cache's transformation of a function that changes its object. The cache keeps a
// copy, whose slices have no spare capacity: decoders leave some. The copy shares parts with others of the pool. Other
// objects (a tombstone of one that was deleted) stay as they are.
func trimmed[T client.Object](pool *share.Pool, trim func(T)) func(any) (any, error) {
	return func(object any) (any, error) {
		if o, ok := object.(T); ok {
			trim(o)
			kept := o.DeepCopyObject()
			pool.Share(kept)
			return kept, nil
		}
		return object, nil
	}
}

func trimMeta(o client.Object) {
	o.SetManagedFields(nil)
	delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
}

// trimQuota keeps what the quota limits of the resources that the controller reads.
func trimQuota(q *corev1.ResourceQuota) {
	trimMeta(q)
	hard := q.Spec.Hard
	q.Annotations, q.Labels, q.Status = nil, nil, corev1.ResourceQuotaStatus{}
	q.Spec = corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}
	for _, name := range []corev1.ResourceName{corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory} {
		if most, limited := hard[name]; limited {
			q.Spec.Hard[name] = most
		}
	}
}

// trimPod keeps what identifies a pod's instance, its node, its state and the VM's size.
func trimPod(p *corev1.Pod) {
	p.ManagedFields = nil
	switch _, _, attaches := pod.AttachedTo(p); {
	case attaches:
		trimAttachment(p)
	case export.Serves(p):
		export.Trim(p)
		s := &p.Status
		s.EphemeralContainerStatuses, s.Conditions = nil, first(s.Conditions)
		s.ContainerStatuses, s.InitContainerStatuses = first(s.ContainerStatuses), first(s.InitContainerStatuses)
	default:
		trimGuest(p)
	}
}

// trimAttachment keeps what says for which VM a pod has which volume or network card.
func trimAttachment(p *corev1.Pod) {
	users := []string{kubevirt.DomainAnnotation, pod.AnnotationNetworks, vmi.AnnotationNetworkStatus, pod.AnnotationProblem}
	keepAnnotations(&p.ObjectMeta, users, hotplug.Annotation, hotplug.CardAnnotation)
	held := slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim == nil && v.Image == nil })
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Volumes: first(held), ImagePullSecrets: first(p.Spec.ImagePullSecrets)}
	keepStatus(&p.Status)
}

// trimGuest trims a VM's pod.
func trimGuest(p *corev1.Pod) {
	labels := p.Labels
	p.Labels = nil
	users := []string{
		vmi.AnnotationNetworkStatus, pod.AnnotationEvictionInProgress, pod.AnnotationBackupHook, pod.AnnotationNetworks,
		pod.AnnotationStartCards, pod.AnnotationReserved, pod.AnnotationPrimaryClaim,
	}
	reserved := []string{
		vmi.AnnotationNoGuest, vmspec.AnnotationNetworkDisks, vmspec.AnnotationCopiedVolumes, pod.AnnotationLinks,
		pod.AnnotationPluggedCards,
	}
	if p.Annotations[order.Annotation] != "" { // of a guest that has moved, which has kept its MAC addresses
		reserved = append(reserved, order.Annotation, vmspec.AnnotationVMI)
	}
	if metav1.GetControllerOf(p) == nil { // then these identify the instance
		users = append(users, kubevirt.DomainAnnotation)
		metav1.SetMetaDataLabel(&p.ObjectMeta, kubevirt.CreatedByLabel, labels[kubevirt.CreatedByLabel])
	}
	keepAnnotations(&p.ObjectMeta, users, reserved...)
	p.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, Volumes: first(pvcs(p.Spec.Volumes)), Containers: sizes(p.Spec.Containers),
		TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
	}
	keepStatus(&p.Status)
}

// sizes keeps the resources of the container that is the VM.
func sizes(containers []corev1.Container) []corev1.Container {
	for _, c := range containers {
		if c.Name == pod.Container {
			return []corev1.Container{{Name: c.Name, Resources: c.Resources}}
		}
	}
	return nil
}

// pvcs keeps the volumes that are PVCs.
func pvcs(volumes []corev1.Volume) []corev1.Volume {
	var all []corev1.Volume
	for _, v := range volumes {
		if v.PersistentVolumeClaim != nil {
			all = append(all, v)
		}
	}
	return all
}

// trimPVC keeps what decides whether and how instances and pools use a PVC.
func trimPVC(c *corev1.PersistentVolumeClaim) {
	labels, preallocated := c.Labels, pod.Preallocated(c)
	c.ManagedFields, c.Labels = nil, nil
	keepAnnotations(&c.ObjectMeta,
		append(pod.AnnotationsOfCDI(), pod.AnnotationOrigin, pod.AnnotationFilled, pool.AnnotationPreserved, pool.AnnotationPreservedVolume, pool.AnnotationAddedDisk))
	if preallocated { // whichever annotation says so
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, pod.AnnotationPreallocation, "true")
	}
	for _, key := range []string{kubevirt.CreatedByLabel, pod.StateLabel, pod.RestoredLabel, pod.RestoredNamespaceLabel} {
		if of, is := labels[key]; is {
			metav1.SetMetaDataLabel(&c.ObjectMeta, key, of)
		}
	}
	s := c.Spec
	c.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: slices.Compact(slices.Sorted(slices.Values(s.AccessModes))), VolumeMode: s.VolumeMode,
		Resources:  corev1.VolumeResourceRequirements{Requests: onlyStorage(s.Resources.Requests), Limits: onlyStorage(s.Resources.Limits)},
		VolumeName: s.VolumeName, StorageClassName: s.StorageClassName,
	}
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: c.Status.Phase, Capacity: onlyStorage(c.Status.Capacity)}
}

// trimNode keeps whether a node can run VMs, and one label of each kind that says so: the scheduler reads
// the others. It keeps which guests the node has without pods, too.
func trimNode(n *corev1.Node) {
	labels, guests := n.Labels, n.Annotations[condition.AnnotationGuests]
	n.ManagedFields, n.Annotations, n.Labels = nil, nil, nil
	for _, kind := range pod.LabelKindsOf(labels) {
		metav1.SetMetaDataLabel(&n.ObjectMeta, kind, "")
	}
	if guests != "" {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, condition.AnnotationGuests, guests)
	}
	n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints}
	var kept []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			kept = append(kept, corev1.NodeCondition{Type: c.Type, Status: c.Status})
		case condition.GuestsWithoutPods:
			kept = append(kept, corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
	}
	n.Status = corev1.NodeStatus{Conditions: kept}
}
