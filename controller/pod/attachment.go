package pod

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// AttachmentLabelValue is the value of [kubevirt.AppLabel] of attachment pods, as with KubeVirt.
	AttachmentLabelValue = "hotplug-disk"
	// attachmentPrefix is KubeVirt's.
	attachmentPrefix = "hp-volume-"
	// attachmentGrace is the time in seconds that the program has to end. With 0 the API server
	// would remove the pod before the kubelet has unmounted its volume.
	attachmentGrace = 5
)

// Holder is the image of attachment pods, whose program waits until the pod ends.
type Holder struct {
	// Image is empty if the cluster has none: then no running VM gets a volume.
	Image string
	// Args are the program's arguments; nil for the image's own.
	Args []string
	// Support returns what the KubeVirt object says of containers that serve VMs; nil for nothing.
	Support func() []kubevirt.SupportContainerResources
}

// Attachment returns the pod that has the kubelet of a VM's node mount a volume for the VM,
// which runs in pod own. The pod does nothing with the volume. Former are the attachment
// pods that had the volume before and have not gone yet: the new one needs another name.
func Attachment(
	vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod, volume string, objects PVCObjects, from Holder, former ...types.UID,
) (*corev1.Pod, error) {
	if h := heldImage(&vmi.Spec, volume); h.image != nil {
		return attachment(vmi, own, h, from, former)
	}
	v, err := objects.one(vmi, volume)
	if err != nil {
		return nil, err
	}
	return attachment(vmi, own, held{volume: volume, claim: v.Name, readOnly: v.ReadOnly, block: v.block}, from, former)
}

// MovedAttachment returns the attachment pod of the target of a migration, for a volume that the VM has
// got by the attachment pod source, or, if that is gone, by one that its instance's spec describes. Pvc is nil for a
// registry disk.
func MovedAttachment(
	vmi *kubevirt.VirtualMachineInstance, target *corev1.Pod, volume string, pvc *corev1.PersistentVolumeClaim, source *corev1.Pod, from Holder,
) (*corev1.Pod, error) {
	if pvc == nil {
		h := heldImage(&vmi.Spec, volume)
		if source != nil {
			h = held{volume: volume, image: Held(source).image, secrets: source.Spec.ImagePullSecrets}
		}
		if h.image == nil {
			return nil, fmt.Errorf("volume %s: neither the instance nor an attachment pod says which image it is", volume)
		}
		return attachment(vmi, target, h, from, nil)
	}
	h := held{volume: volume, claim: pvc.Name, block: IsBlock(pvc)}
	if source != nil {
		h.readOnly = Held(source).readOnly
	} else {
		h.readOnly = slices.ContainsFunc(PVCs(&vmi.Spec), func(use PVC) bool { return use.Volume == volume && use.ReadOnly })
	}
	return attachment(vmi, target, h, from, nil)
}

// HeldVolume is the volume of an attachment pod.
type HeldVolume struct {
	// Name is the volume's, PVC the name of its PVC; "" for a registry disk.
	Name, PVC string

	readOnly bool
	image    *corev1.ImageVolumeSource
}

// Image returns the name of the image of a registry disk; "" for a PVC.
func (h HeldVolume) Image() string {
	if h.image == nil {
		return ""
	}
	return h.image.Reference
}

// Held returns the one volume of an attachment pod, which is empty for a pod of a card.
func Held(p *corev1.Pod) HeldVolume {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			return HeldVolume{Name: v.Name, PVC: v.PersistentVolumeClaim.ClaimName, readOnly: v.PersistentVolumeClaim.ReadOnly}
		case v.Image != nil:
			return HeldVolume{Name: v.Name, image: v.Image}
		}
	}
	return HeldVolume{}
}

// held is what an attachment pod has: a volume, which is a PVC or an image, or the network of a card.
type held struct {
	volume, claim   string
	readOnly, block bool
	image           *corev1.ImageVolumeSource
	secrets         []corev1.LocalObjectReference // to pull the image with
	card            string
}

// heldImage returns the image of an instance's registry disk; none for another volume.
func heldImage(s *kubevirt.VirtualMachineInstanceSpec, volume string) held {
	v := VolumeOf(s, volume)
	if v == nil || v.ContainerDisk == nil {
		return held{}
	}
	one := vmspec.PodVolumes([]kubevirt.Volume{*v})[0]
	h := held{volume: volume, image: one.Source.Image}
	if one.PullSecret != "" {
		h.secrets = []corev1.LocalObjectReference{{Name: one.PullSecret}}
	}
	return h
}

// what describes it for an error.
func (h held) what() string {
	if h.card != "" {
		return "network card " + h.card
	}
	return "volume " + h.volume
}

// name returns the name of the attachment pod.
func (h held) name(own *corev1.Pod, former []types.UID) string {
	if h.card != "" {
		return attachmentName(own, cardPrefix, h.card, former)
	}
	return attachmentName(own, attachmentPrefix, h.volume, former)
}

// mount has a container mount the volume.
func (h held) mount(c *corev1.Container) {
	switch {
	case h.card != "":
	case h.block:
		c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: h.volume, DevicePath: path.Join(deviceRoot, h.volume)})
	default:
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
			Name: h.volume, MountPath: path.Join(mountRoot, h.volume), ReadOnly: h.readOnly || h.image != nil,
		})
	}
}

// volumes returns the pod's volumes.
func (h held) volumes() []corev1.Volume {
	switch {
	case h.card != "":
		return nil
	case h.image != nil:
		return []corev1.Volume{{Name: h.volume, VolumeSource: corev1.VolumeSource{Image: h.image}}}
	}
	return []corev1.Volume{{Name: h.volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: h.claim, ReadOnly: h.readOnly},
	}}}
}

func attachment(vmi *kubevirt.VirtualMachineInstance, own *corev1.Pod, h held, from Holder, former []types.UID) (*corev1.Pod, error) {
	spec, err := from.spec(h.what())
	if err != nil {
		return nil, err
	}
	h.mount(&spec.Containers[0])
	spec.Volumes, spec.ImagePullSecrets, spec.PriorityClassName = h.volumes(), h.secrets, vmi.Spec.PriorityClassName
	PlaceOn(&spec, own.Spec.NodeName)
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: h.name(own, former), Namespace: vmi.Namespace,
			Labels: map[string]string{kubevirt.AppLabel: AttachmentLabelValue},
			Annotations: map[string]string{
				order.Annotation:          string(own.UID),
				kubevirt.DomainAnnotation: vmi.Name,
			},
			// Without blockOwnerDeletion, which would need a right on the finalizers of pods.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: own.Name, UID: own.UID, Controller: &yes}},
		},
		Spec: spec,
	}, nil
}

// spec returns that of a pod that waits until it ends, with one container. An error names what the pod is for.
func (h Holder) spec(what string) (corev1.PodSpec, error) {
	if h.Image == "" {
		return corev1.PodSpec{}, fmt.Errorf("%s: the controller does not know its own image; "+
			"have the cluster's administrator set -attachment-image of nodevirt-controller", what)
	}
	no, grace := false, int64(attachmentGrace)
	r := attachmentResources()
	if h.Support != nil {
		r = Support(kubevirt.HotplugAttachment, h.Support(), r)
	}
	return corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: AttachmentLabelValue, Image: h.Image, Args: h.Args, ImagePullPolicy: corev1.PullIfNotPresent,
			Resources: r, SecurityContext: RestrictedContainer(),
		}},
		TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken:  &no,
		EnableServiceLinks:            &no,
		SecurityContext:               Restricted(),
	}, nil
}

// PlaceOn has the scheduler put a pod on a node, and bind its PVCs to volumes that the node reaches.
func PlaceOn(spec *corev1.PodSpec, name string) {
	spec.Affinity, spec.Tolerations = OnNode(name), []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

// AttachmentName returns the name of an attachment pod; see [Attachment].
func AttachmentName(own *corev1.Pod, volume string, former ...types.UID) string {
	return attachmentName(own, attachmentPrefix, volume, former)
}

func attachmentName(own *corev1.Pod, prefix, held string, former []types.UID) string {
	of := []string{string(own.UID), held}
	for _, uid := range former {
		of = append(of, string(uid))
	}
	return UniqueName(prefix+held, maxLabel, strings.Join(of, "/"))
}

// AttachedTo returns the instance that an attachment pod is for, by its name, and the pod
// of the instance's VM; false for another pod.
func AttachedTo(p *corev1.Pod) (instance string, own types.UID, is bool) {
	if p.Labels[kubevirt.AppLabel] != AttachmentLabelValue {
		return "", "", false
	}
	instance, own = p.Annotations[kubevirt.DomainAnnotation], types.UID(p.Annotations[order.Annotation])
	return instance, own, instance != "" && own != ""
}

// BlankSize returns the size in bytes of the disk that a node makes in a PVC which has none;
// 0 for a PVC that needs none.
func (c PVCObjects) BlankSize(vmi *kubevirt.VirtualMachineInstance, volume string) int64 {
	v, err := c.one(vmi, volume)
	if err != nil || v.block || v.ReadOnly {
		return 0
	}
	return v.size()
}

// one returns one of an instance's volumes that is a PVC.
func (c PVCObjects) one(vmi *kubevirt.VirtualMachineInstance, volume string) (pvcVolume, error) {
	all, err := c.volumes(&Only(vmi, volume).Spec, nil)
	if err != nil {
		return pvcVolume{}, err
	}
	v, is := all[volume]
	if !is {
		return v, fmt.Errorf("volume %s is not a PVC", volume)
	}
	return v, nil
}

// OnNode requires a node by its name.
func OnNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
		}}},
	}}
}

// attachmentResources are those of a program that waits. There are limits for quotas.
func attachmentResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("80Mi")},
	}
}

// HolderOf returns the ID of the container that holds an attachment pod's volume, without the name of
// its runtime; empty if it does not run.
func HolderOf(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			return id
		}
	}
	return ""
}

// Waiting returns why the container of an attachment pod does not start, such as that its image can't be
// pulled; nil if nothing is wrong.
func Waiting(p *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Message != "" {
			return c.State.Waiting
		}
	}
	return nil
}

// Unscheduled returns why no node has a pod; nil if one has it.
func Unscheduled(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c
		}
	}
	return nil
}
