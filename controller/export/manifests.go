package export

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/controller/instancetype"
)

// manifests returns the objects from which a cluster with CDI makes the VM, in JSON: a ConfigMap
// with the authority, if there is one, the VM without its types, and DataVolumes that download its PVCs
// from below a base.
func (r *Reconciler) manifests(ctx context.Context, w *work, s *source, base, authority string) ([]byte, error) {
	var all []any
	trust := ""
	if authority != "" {
		trust = fit(prefixCA+w.e.Name, maxName)
		all = append(all, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: trust},
			Data:       map[string]string{"ca.pem": authority},
		})
	}
	vm, err := r.expanded(ctx, s.spec)
	if err != nil {
		return nil, err
	}
	all = append(all, vm)
	for i, v := range config(w, s).Volumes {
		if s.volumes[i].has == persistentState {
			continue
		}
		of, source := s.volumes[i].pvc.Spec, s.volumes[i].source
		from, kind := download(w, v, base, trust)
		if t := templateOf(vm, source); t != nil {
			t.Spec.Source, t.Spec.SourceRef, t.Spec.ContentType = from, nil, kind
			continue
		}
		all = append(all, &cdi.DataVolume{
			TypeMeta:   metav1.TypeMeta{APIVersion: cdi.SchemeGroupVersion.String(), Kind: "DataVolume"},
			ObjectMeta: metav1.ObjectMeta{Name: source, Namespace: w.e.Namespace},
			Spec: cdi.DataVolumeSpec{
				Source: from, ContentType: kind,
				Storage: &cdi.StorageSpec{AccessModes: of.AccessModes, VolumeMode: of.VolumeMode, Resources: of.Resources},
			},
		})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode the manifests: %w", err)
	}
	return text, nil
}

// expanded returns a VM with what its types stand for, as a new one.
func (r *Reconciler) expanded(ctx context.Context, of *kubevirt.VirtualMachine) (*kubevirt.VirtualMachine, error) {
	vm := of.DeepCopy()
	types, err := instancetype.Find(ctx, r.live, vm)
	if err == nil && vm.Spec.Template != nil {
		err = types.Expand(vm.Spec.Template)
	}
	if err != nil {
		return nil, fmt.Errorf("expand VM %s: %w", vm.Name, err)
	}
	vm.Spec.Instancetype, vm.Spec.Preference = nil, nil
	annotations := maps.Clone(vm.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation) // as large as the object
	return &kubevirt.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: kubevirt.GroupVersion.String(), Kind: kindVM},
		ObjectMeta: metav1.ObjectMeta{Name: vm.Name, Namespace: vm.Namespace, Labels: vm.Labels, Annotations: annotations},
		Spec:       vm.Spec,
	}, nil
}

// download returns how CDI gets a PVC: a disk, or an archive of a folder.
func download(w *work, v server.Volume, base, trust string) (*cdi.DataVolumeSource, cdi.DataVolumeContentType) {
	want, kind := api.KubeVirtGz, cdi.DataVolumeKubeVirt
	if !v.Block && !v.Disk {
		want, kind = api.ArchiveGz, cdi.DataVolumeArchive
	}
	from := &cdi.DataVolumeSourceHTTP{CertConfigMap: trust, SecretExtraHeaders: []string{server.SecretName(w.e.Name)}}
	for _, f := range v.Formats() {
		if f.Name == want {
			from.URL = base + f.Path
		}
	}
	return &cdi.DataVolumeSource{HTTP: from}, kind
}

// templateOf returns a VM's template of a DataVolume; nil for none.
func templateOf(vm *kubevirt.VirtualMachine, name string) *kubevirt.DataVolumeTemplateSpec {
	for i := range vm.Spec.DataVolumeTemplates {
		if t := &vm.Spec.DataVolumeTemplates[i]; t.Name == name {
			return t
		}
	}
	return nil
}
