package pool

import (
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/pool/v1beta1"
)

// newVM returns the VM of a number that a pool's template makes.
func newVM(pool *vmPool, index int) *kubevirt.VirtualMachine {
	t := pool.Spec.VirtualMachineTemplate
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name:            nameOf(pool, index),
			Namespace:       pool.Namespace,
			Labels:          maps.Clone(t.ObjectMeta.Labels),
			Annotations:     maps.Clone(t.ObjectMeta.Annotations),
			Finalizers:      []string{kubevirt.VirtualMachineControllerFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, api.SchemeGroupVersion.WithKind(api.VirtualMachinePoolKind))},
		},
		Spec: specOf(pool, index),
	}
	revision := revisionName(pool)
	metav1.SetMetaDataLabel(&vm.ObjectMeta, kubevirt.VirtualMachinePoolRevisionName, revision)
	if vm.Spec.Template != nil {
		metav1.SetMetaDataLabel(&vm.Spec.Template.ObjectMeta, kubevirt.VirtualMachinePoolRevisionName, revision)
	}
	return vm
}

// specOf returns the spec that a revision makes of a VM of a number.
func (v revision) specOf(pool *vmPool, index int) kubevirt.VirtualMachineSpec {
	of := &vmPool{ObjectMeta: pool.ObjectMeta}
	of.Spec.VirtualMachineTemplate, of.Spec.NameGeneration = v.Template, v.NameGeneration
	return specOf(of, index)
}

// specOf returns the template's spec with the names of a VM of a number.
func specOf(pool *vmPool, index int) kubevirt.VirtualMachineSpec {
	spec := *pool.Spec.VirtualMachineTemplate.Spec.DeepCopy()
	suffix := "-" + strconv.Itoa(index)
	renamed := map[string]bool{}
	for i := range spec.DataVolumeTemplates {
		renamed[spec.DataVolumeTemplates[i].Name] = true
		spec.DataVolumeTemplates[i].Name += suffix
	}
	if spec.Template == nil {
		return spec
	}
	given := pool.Spec.NameGeneration
	for i := range spec.Template.Spec.Volumes {
		v := &spec.Template.Spec.Volumes[i]
		if v.DataVolume != nil && renamed[v.DataVolume.Name] {
			v.DataVolume.Name += suffix
		}
		if v.PersistentVolumeClaim != nil && renamed[v.PersistentVolumeClaim.ClaimName] {
			v.PersistentVolumeClaim.ClaimName += suffix
		}
		if given != nil && isTrue(given.AppendIndexToConfigMapRefs) {
			appendTo(configMapNames(v), suffix)
		}
		if given != nil && isTrue(given.AppendIndexToSecretRefs) {
			appendTo(secretNames(v), suffix)
		}
	}
	return spec
}

func isTrue(b *bool) bool { return b != nil && *b }

func appendTo(names []*string, suffix string) {
	for _, name := range names {
		if *name != "" {
			*name += suffix
		}
	}
}

// configMapNames returns the names of the ConfigMaps in a volume.
func configMapNames(v *kubevirt.Volume) []*string {
	var all []*string
	if v.ConfigMap != nil {
		all = append(all, &v.ConfigMap.Name)
	}
	if v.Sysprep != nil && v.Sysprep.ConfigMap != nil {
		all = append(all, &v.Sysprep.ConfigMap.Name)
	}
	return all
}

// secretNames returns the names of the Secrets in a volume. Those for pulling images
// are not among them: all VMs have the same images.
func secretNames(v *kubevirt.Volume) []*string {
	var all []*string
	if v.Secret != nil {
		all = append(all, &v.Secret.SecretName)
	}
	if v.Sysprep != nil && v.Sysprep.Secret != nil {
		all = append(all, &v.Sysprep.Secret.Name)
	}
	if c := v.CloudInitNoCloud; c != nil {
		if c.UserDataSecretRef != nil {
			all = append(all, &c.UserDataSecretRef.Name)
		}
		if c.NetworkDataSecretRef != nil {
			all = append(all, &c.NetworkDataSecretRef.Name)
		}
	}
	if c := v.CloudInitConfigDrive; c != nil {
		if c.UserDataSecretRef != nil {
			all = append(all, &c.UserDataSecretRef.Name)
		}
		if c.NetworkDataSecretRef != nil {
			all = append(all, &c.NetworkDataSecretRef.Name)
		}
	}
	return all
}
