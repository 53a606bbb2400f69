package export

import (
	"context"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	backupapi "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

const (
	// Container is the name of the container that serves in an export's pod.
	Container = "exporter"
	// socketsRoot is the folder of the emptyDir in the pod.
	socketsRoot = "/run/nodevirt-export"
)

// PodName returns the name of the export's one pod.
func PodName(e *api.VirtualMachineExport) string { return podName(e) }

// pods reads the pods of instances; package vmi's Pods.
type pods interface {
	PodOf(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, name string) (*corev1.Pod, error)
}

// backup is a backup of a running VM in mode Pull, which the VM's node serves.
type backup struct {
	// guest is the VM's pod.
	guest   *corev1.Pod
	changes bool
	volumes []string
}

// ofBackup exports the disks of a backup in mode Pull. Package backup creates the export, and has the
// node serve its pod.
func (f *sources) ofBackup(ctx context.Context, w *work) (*source, error) {
	b, key := new(backupapi.VirtualMachineBackup), w.key(w.e.Spec.Source.Name)
	s := new(source)
	err := f.client.Get(ctx, key, b)
	if apierrors.IsNotFound(err) {
		s.why = because(reasonInitializing, "VirtualMachineBackup %s not found", key)
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read backup %s: %w", key, err)
	}
	if !metav1.IsControlledBy(w.e, b) {
		s.why = because(reasonInitializing, "VirtualMachineBackup %s creates its export itself, in mode Pull", key)
		return s, nil
	}
	st := b.Status
	if b.DeletionTimestamp != nil || st == nil || len(st.IncludedVolumes) == 0 ||
		!apimeta.IsStatusConditionTrue(st.Conditions, string(backupapi.ConditionProgressing)) {
		s.why = because(reasonInitializing, "VirtualMachineBackup %s is not in progress", key)
		return s, nil
	}
	guest, err := f.guestOf(ctx, b)
	if err != nil {
		return nil, err
	}
	if guest == nil {
		s.why = because(reasonInitializing, "the VM of VirtualMachineBackup %s does not run", key)
		return s, nil
	}
	s.backup = &backup{guest: guest, changes: st.Type == backupapi.Incremental}
	for _, v := range st.IncludedVolumes {
		s.backup.volumes = append(s.backup.volumes, v.VolumeName)
	}
	return s, nil
}

// guestOf returns the pod of the VM of a backup; nil if the VM does not run.
func (f *sources) guestOf(ctx context.Context, b *backupapi.VirtualMachineBackup) (*corev1.Pod, error) {
	name := b.Spec.Source.Name
	if b.Spec.Source.Kind != kindVM {
		t := new(backupapi.VirtualMachineBackupTracker)
		if err := f.client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: name}, t); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		name = t.Spec.Source.Name
	}
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := f.client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: name}, vmi); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if vmi.IsFinal() {
		return nil, nil
	}
	p, err := f.pods.PodOf(ctx, vmi, pod.Current(vmi))
	if err != nil || p == nil || p.Spec.NodeName == "" {
		return nil, err
	}
	return p, nil
}

// serves returns what the server of a backup serves.
func (b *backup) serves() *server.Backup {
	served := &server.Backup{Socket: path.Join(socketsRoot, order.SocketVolume, order.SocketFile), Volumes: b.volumes}
	if b.changes {
		served.Changes = order.ChangesContext
	}
	return served
}

// place puts the pod of a backup's export on the VM's node, as an attachment of the VM, with the
// folder in which the node creates its socket.
func (b *backup) place(p *corev1.Pod, c *corev1.Container) {
	p.Annotations[order.Annotation] = string(b.guest.UID)
	pod.PlaceOn(&p.Spec, b.guest.Spec.NodeName)
	size := resource.MustParse("1Mi")
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: order.SocketVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size},
	}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
		Name: order.SocketVolume, MountPath: path.Join(socketsRoot, order.SocketVolume), ReadOnly: true,
	})
}

// backupLinks returns the links of a backup's disks, below a base.
func backupLinks(b *server.Backup, base string) []api.VirtualMachineExportBackup {
	if b == nil {
		return nil
	}
	var all []api.VirtualMachineExportBackup
	for _, name := range b.Volumes {
		paths := server.Endpoints(name)
		one := api.VirtualMachineExportBackup{Name: name}
		for _, kind := range []api.ExportBackupEndpoint{api.Data, api.Map} {
			one.Endpoints = append(one.Endpoints, api.VirtualMachineExportBackupEndpoint{Endpoint: kind, Url: base + paths[kind]})
		}
		all = append(all, one)
	}
	return all
}
