package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// kept are those of other parts that are about the instance's object, not the pod.
var kept = []string{
	corev1.LastAppliedConfigAnnotation,
	kubevirt.ControllerAPILatestVersionObservedAnnotation,
	kubevirt.ControllerAPIStorageVersionObservedAnnotation,
	AnnotationTemplate,
	AnnotationFixed,
	AnnotationOverridden,
	AnnotationHotplugged,
	AnnotationCards,
	AnnotationResume,
	AnnotationReserved,
}

// Annotations of Kubernetes' descheduler, as of KubeVirt's pods. Their values mean nothing.
const (
	// AnnotationEvictOnly says that an eviction of the pod may be refused, and begin its move.
	AnnotationEvictOnly = "descheduler.alpha.kubernetes.io/request-evict-only"
	// AnnotationEvictionInProgress says that the pod's guest moves.
	AnnotationEvictionInProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"
)

// annotations returns the instance's annotations, KubeVirt's, and those that
// describe the VM to the node.
func annotations(vmi *kubevirt.VirtualMachineInstance, registered map[string]kubevirt.InterfaceBindingPlugin) (map[string]string, error) {
	text, err := machine(&vmi.Spec)
	if err != nil {
		return nil, err
	}
	// What the node would refuse would be seen late and far away.
	problems := manifest.CheckAnnotations(field.NewPath("metadata", "annotations"), vmi.Annotations, nil)
	_, p := vmspec.DecodeVMI(text)
	if problems = append(problems, p...); len(problems) > 0 {
		return nil, sentences(problems)
	}
	all := maps.Clone(vmi.Annotations)
	if all == nil {
		all = map[string]string{}
	}
	for _, key := range kept {
		delete(all, key)
	}
	all[kubevirt.DomainAnnotation] = vmi.Name
	all["kubectl.kubernetes.io/default-container"] = Container
	all[vmspec.AnnotationVMContainer] = Container
	all[vmspec.AnnotationVMI] = string(text)
	all[AnnotationEvictOnly] = ""
	if vmspec.ReadsNode(&vmi.Spec) { // and the cluster's gates let it
		all[vmspec.AnnotationDownwardMetrics] = ""
	}
	if err := addNetworks(all, vmi, registered); err != nil {
		return nil, err
	}
	if err := addBindings(all, vmi, registered); err != nil {
		return nil, err
	}
	return all, addMetaData(all, vmi)
}

// machine is the part of the instance's spec that the node makes a machine of,
// as JSON. What concerns the pod alone stays out.
func machine(s *kubevirt.VirtualMachineInstanceSpec) ([]byte, error) {
	part := kubevirt.VirtualMachineInstanceSpec{
		Architecture:                  s.Architecture,
		Domain:                        s.Domain,
		Hostname:                      s.Hostname,
		Subdomain:                     s.Subdomain,
		StartStrategy:                 s.StartStrategy,
		TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds,
		Networks:                      s.Networks,
		AccessCredentials:             s.AccessCredentials,
		ResourceClaims:                s.ResourceClaims,
	}
	if kernelImage(s) != nil {
		part.Domain = *s.Domain.DeepCopy()
		kernel := kernelImage(&part)
		kernel.ImagePullPolicy, kernel.ImagePullSecret = "", ""
	}
	for _, v := range vmspec.PodVolumes(s.Volumes) {
		part.Volumes = append(part.Volumes, v.Node)
	}
	text, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return text, nil
}

func sentences(problems field.ErrorList) error {
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		errs = append(errs, errors.New(fields.Sentence(p)))
	}
	return errors.Join(errs...)
}

// addMetaData keeps cloud-init's instance id the same for all instances of a VM,
// whose pods have a new name each: a guest with a disk that lasts must not take
// each start for its first.
func addMetaData(all map[string]string, vmi *kubevirt.VirtualMachineInstance) error {
	seeded := slices.ContainsFunc(vmspec.PodVolumes(vmi.Spec.Volumes),
		func(v vmspec.PodVolume) bool { return v.Kind.Needs == vmspec.NeedSecrets })
	for _, key := range []string{
		vmspec.AnnotationUserData, vmspec.AnnotationNetworkConfig, vmspec.AnnotationSSHKeys,
	} {
		_, given := all[key]
		seeded = seeded || given
	}
	if _, given := all[vmspec.AnnotationMetaData]; given || !seeded {
		return nil
	}
	text, err := json.Marshal(map[string]string{"instance-id": vmi.Name + "." + vmi.Namespace})
	if err != nil {
		return fmt.Errorf("cloud-init's meta data: %w", err)
	}
	all[vmspec.AnnotationMetaData] = string(text)
	return nil
}
