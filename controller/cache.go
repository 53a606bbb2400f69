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

// trimQuota keeps what the quota limits.
func trimQuota(q *corev1.ResourceQuota) {
	trimMeta(q)
	q.Status = corev1.ResourceQuotaStatus{}
}

// trimPod keeps what identifies a pod's instance, its node, its state and the VM's size.
func trimPod(p *corev1.Pod) {
	p.ManagedFields = nil
	if _, _, is := pod.AttachedTo(p); is {
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Volumes: p.Spec.Volumes, ImagePullSecrets: p.Spec.ImagePullSecrets}
		return
	}
	if export.Serves(p) {
		export.Trim(p)
		return
	}
	annotations, labels := p.Annotations, p.Labels
	p.Annotations, p.Labels = nil, nil
	kept := []string{
		vmi.AnnotationNetworkStatus, vmi.AnnotationNoGuest, vmspec.AnnotationNetworkDisks, vmspec.AnnotationCopiedVolumes, pod.AnnotationEvictionInProgress, pod.AnnotationBackupHook, pod.AnnotationLinks, pod.AnnotationNetworks, pod.AnnotationStartCards, pod.AnnotationPluggedCards,
		pod.AnnotationReserved,
	}
	if annotations[order.Annotation] != "" { // of a guest that has moved, which has kept its MAC addresses
		kept = append(kept, order.Annotation, vmspec.AnnotationVMI)
	}
	for _, key := range kept {
		if value, ok := annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
		}
	}
	if metav1.GetControllerOf(p) == nil { // then these identify the instance
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, kubevirt.DomainAnnotation, annotations[kubevirt.DomainAnnotation])
		metav1.SetMetaDataLabel(&p.ObjectMeta, kubevirt.CreatedByLabel, labels[kubevirt.CreatedByLabel])
	}
	p.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, Volumes: pvcs(p.Spec.Volumes), Containers: sizes(p.Spec.Containers),
		TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
	}
	p.Status.EphemeralContainerStatuses, p.Status.HostIPs, p.Status.StartTime = nil, nil, nil
	p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodInitialized || c.Type == corev1.ContainersReady
	})
	for _, all := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i, c := range all {
			all[i] = corev1.ContainerStatus{Name: c.Name, State: c.State, Resources: c.Resources}
		}
	}
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
	annotations, labels, preallocated := c.Annotations, c.Labels, pod.Preallocated(c)
	c.ManagedFields, c.Annotations, c.Labels = nil, nil, nil
	if preallocated { // whichever annotation says so
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, pod.AnnotationPreallocation, "true")
	}
	for _, key := range []string{kubevirt.CreatedByLabel, pod.StateLabel, pod.RestoredLabel, pod.RestoredNamespaceLabel} {
		if of, is := labels[key]; is {
			metav1.SetMetaDataLabel(&c.ObjectMeta, key, of)
		}
	}
	for _, key := range append(pod.AnnotationsOfCDI(), pod.AnnotationOrigin, pod.AnnotationFilled, pool.AnnotationPreserved, pool.AnnotationPreservedVolume) {
		if value, ok := annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value)
		}
	}
	s := c.Spec
	c.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: s.AccessModes, VolumeMode: s.VolumeMode, Resources: s.Resources, VolumeName: s.VolumeName, StorageClassName: s.StorageClassName,
	}
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: c.Status.Phase, Capacity: c.Status.Capacity}
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
