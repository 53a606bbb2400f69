package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	api "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/mount"
	"github.com/nodevirt/nodevirt/controller/pages"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

const (
	// label is on the pods that hold the PVCs of backups.
	label = "vm-backup"
	// orderTime bounds one order to a node, maxAnswer the node's answer in bytes, and maxMessage
	// foreign text in a status.
	orderTime  = 20 * time.Second
	maxAnswer  = 16 << 10
	maxMessage = 1024
	// maxName bounds a backup's name in names of files and checkpoints, and maxFile a file's name.
	maxName = 180
	maxFile = 250
	// timeFormat is KubeVirt's, in names of checkpoints and folders.
	timeFormat = "2006-01-02_15-04-05"
)

// work is a backup with what it is about.
type work struct {
	backup, was *vmBackup
	vmName      string
	// tracker, vm and vmi are nil if there are none.
	tracker *tracker
	vm      *kubevirt.VirtualMachine
	vmi     *instance
}

// look reads what a backup is about. A backup that has begun is of the instance that it began with, whatever has happened
// to its tracker since: the node must still complete or end it.
func (r *Reconciler) look(ctx context.Context, b *vmBackup) (*work, error) {
	w := &work{backup: b, was: b.DeepCopy(), vmName: b.Spec.Source.Name}
	if b.Spec.Source.Kind == kindTracker {
		t := new(tracker)
		found, err := r.find(ctx, b.Namespace, b.Spec.Source.Name, t)
		if err != nil {
			return nil, err
		}
		if w.vmName = ""; found {
			w.tracker, w.vmName = t, t.Spec.Source.Name
		}
		begun, err := r.begun(ctx, b)
		if err != nil {
			return nil, err
		}
		if begun != "" && (w.vmName == "" || isInitiated(b) || ended(b)) && begun != w.vmName {
			w.tracker, w.vmName = nil, begun
		}
		if w.vmName == "" {
			return w, nil
		}
	}
	vm, vmi := new(kubevirt.VirtualMachine), new(instance)
	if found, err := r.find(ctx, b.Namespace, w.vmName, vm); err != nil {
		return nil, err
	} else if found {
		w.vm = vm
	}
	if found, err := r.find(ctx, b.Namespace, w.vmName, vmi); err != nil {
		return nil, err
	} else if found {
		w.vmi = vmi
	}
	return w, nil
}

// begun returns the name of the instance that a backup has begun with; "" if it has not begun, or the instance is gone.
func (r *Reconciler) begun(ctx context.Context, b *vmBackup) (string, error) {
	uid := b.Annotations[annotationInstance]
	if uid == "" {
		return "", nil
	}
	all := new(kubevirt.VirtualMachineInstanceList)
	if err := r.Client.List(ctx, all, client.InNamespace(b.Namespace)); err != nil {
		return "", fmt.Errorf("list VMIs in %s: %w", b.Namespace, err)
	}
	for i := range all.Items {
		if string(all.Items[i].UID) == uid {
			return all.Items[i].Name, nil
		}
	}
	return "", nil
}

func (r *Reconciler) find(ctx context.Context, namespace, name string, o client.Object) (bool, error) {
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// lost reports whether the instance that the backup began with has ended.
func (w *work) lost() bool {
	return w.vmi == nil || w.vmi.IsFinal() || string(w.vmi.UID) != w.backup.Annotations[annotationInstance]
}

// name is the backup's for the node, volume that of its PVC.
func (w *work) name() string   { return string(w.backup.UID) }
func (w *work) volume() string { return "backup-" + string(w.backup.UID) }

// short returns the backup's name, in a length that files' names have room for.
func (w *work) short() string {
	if name := w.backup.Name; len(name) <= maxName {
		return name
	}
	return pod.UniqueName(w.backup.Name, maxName, w.backup.Name)
}

// checkpoint returns the name of the backup's checkpoint and folder, as KubeVirt has it.
func (w *work) checkpoint() string {
	return w.short() + "-" + w.backup.CreationTimestamp.UTC().Format(timeFormat)
}

func latest(t *tracker) string {
	if t.Status == nil || t.Status.LatestCheckpoint == nil {
		return ""
	}
	return t.Status.LatestCheckpoint.Name
}

// missing returns what a backup waits for, in KubeVirt's words where it has them; empty for nothing.
func (r *Reconciler) missing(ctx context.Context, w *work) (string, error) {
	source := w.backup.Spec.Source.Name
	switch {
	case w.vmName == "":
		return fmt.Sprintf("BackupTracker %s does not exist", source), nil
	case w.vm == nil:
		return fmt.Sprintf("VM %s/%s doesnt exist", w.backup.Namespace, w.vmName), nil
	case w.vmi == nil || w.vmi.Status.Phase != kubevirt.Running || w.vmi.DeletionTimestamp != nil:
		return fmt.Sprintf("vm %s is not running, cannot do backup", w.vmName), nil
	}
	disks, why := disksOf(w.vmi)
	switch {
	case why != "":
		return why, nil
	case len(disks) == 0:
		return fmt.Sprintf("vm %s has no volumes to backup", w.vmName), nil
	case len(disks) > order.MaxBackupDisks:
		return fmt.Sprintf("vm %s has more than %d volumes to backup", w.vmName, order.MaxBackupDisks), nil
	case state(w.vmi.Status.ChangedBlockTracking) != kubevirt.ChangedBlockTrackingEnabled:
		return fmt.Sprintf("vm %s has no ChangedBlockTracking, cannot start backup: %s", w.vmName, untracked(w.vmi)), nil
	}
	if m := w.vmi.Status.MigrationState; m != nil && !m.Completed && !m.Failed {
		return fmt.Sprintf("vm %s is currently migrating, waiting for migration to complete before starting backup", w.vmName), nil
	}
	others := new(vmBackupList)
	if err := r.Client.List(ctx, others, client.InNamespace(w.backup.Namespace)); err != nil {
		return "", err
	}
	for i := range others.Items {
		o := &others.Items[i]
		if o.UID != w.backup.UID && isInitiated(o) && o.Annotations[annotationInstance] == string(w.vmi.UID) {
			return fmt.Sprintf("another backup %s is already in progress", o.Name), nil
		}
	}
	return r.unfit(ctx, w)
}

// untracked says how a VM gets its changed blocks tracked.
func untracked(vmi *instance) string {
	if s := state(vmi.Status.ChangedBlockTracking); s == kubevirt.ChangedBlockTrackingInitializing {
		return "it begins in a moment"
	}
	return "give the VM or its namespace labels that spec.configuration.changedBlockTrackingLabelSelectors of the KubeVirt object selects"
}

// unfit returns why the PVC can't have the files.
func (r *Reconciler) unfit(ctx context.Context, w *work) (string, error) {
	name, pvc := *w.backup.Spec.PvcName, new(corev1.PersistentVolumeClaim)
	found, err := r.find(ctx, w.backup.Namespace, name, pvc)
	switch {
	case err != nil:
		return "", err
	case !found:
		return fmt.Sprintf("PVC %s does not exist", name), nil
	case pod.IsBlock(pvc):
		return fmt.Sprintf("PVC %s must have volumeMode Filesystem", name), nil
	case !slices.ContainsFunc(pvc.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany }):
		return fmt.Sprintf("PVC %s is read-only", name), nil
	}
	for _, v := range w.vmi.Spec.Volumes {
		if pod.ClaimOf(&v) == name {
			return fmt.Sprintf("PVC %s is volume %s of the VM; use another one for backups", name, v.Name), nil
		}
	}
	return "", nil
}

// disksOf returns the volumes of an instance that a backup has: as with KubeVirt PVCs, DataVolumes
// and hostDisks, if they are disks. It returns what must be waited for, if something must.
func disksOf(vmi *instance) (all []string, why string) {
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		d := pod.DiskOf(&vmi.Spec, v.Name)
		if d == nil || d.CDRom != nil || d.LUN != nil || v.PersistentVolumeClaim == nil && v.DataVolume == nil && v.HostDisk == nil {
			continue
		}
		for _, s := range vmi.Status.VolumeStatus {
			if s.Name == v.Name && s.HotplugVolume != nil && s.Phase != kubevirt.VolumeReady {
				return nil, fmt.Sprintf("volume %s is not attached to the VM yet", v.Name)
			}
		}
		all = append(all, v.Name)
	}
	return all, ""
}

// mount has the PVC mounted on the VM's node, and returns the container that has it.
func (r *Reconciler) mount(ctx context.Context, w *work) (container, why string, err error) {
	pvc := new(corev1.PersistentVolumeClaim)
	key := client.ObjectKey{Namespace: w.backup.Namespace, Name: *w.backup.Spec.PvcName}
	if err := r.Live.Get(ctx, key, pvc); apierrors.IsNotFound(err) {
		return "", fmt.Sprintf("PVC %s does not exist", key.Name), nil
	} else if err != nil {
		return "", "", fmt.Errorf("read PVC %s: %w", key, err)
	}
	container, why, err = r.Mounts.Mount(ctx, mount.Volume{VMI: w.vmi, Name: w.volume(), PVC: pvc, Label: label})
	return container, clip(why), err
}

// order returns the order for a backup. It keeps the checkpoints of all of the VM's trackers.
func (r *Reconciler) order(ctx context.Context, w *work, container string) (order.BackupFiles, error) {
	a := order.BackupFiles{
		Name: w.name(), Volume: w.volume(), Container: container, Folder: w.vmName + "/" + w.checkpoint(), Quiesce: !w.backup.Spec.SkipQuiesce,
		Pull: pulls(&w.backup.Spec),
	}
	disks, _ := disksOf(w.vmi)
	for _, name := range disks {
		file := w.short() + "-" + name + order.BackupSuffix
		if len(file) > maxFile {
			file = name + order.BackupSuffix
		}
		a.Disks = append(a.Disks, order.BackupFile{Disk: name, File: file})
	}
	if w.tracker != nil {
		a.Checkpoint = w.checkpoint()
		if !w.backup.Spec.ForceFullBackup {
			a.Since = latest(w.tracker)
		}
	}
	err := pages.Each(ctx, r.Live, w.backup.Namespace, func() *trackerList { return new(trackerList) }, func(page *trackerList) (bool, error) {
		for i := range page.Items {
			t := &page.Items[i]
			if name := latest(t); t.Spec.Source.Name == w.vmName && name != "" && name != a.Since && !slices.Contains(a.Keep, name) {
				a.Keep = append(a.Keep, name)
			}
		}
		return false, nil
	})
	if err != nil {
		return a, fmt.Errorf("list the backup trackers of namespace %s: %w", w.backup.Namespace, err)
	}
	return a, nil
}

// give gives the VM's node an order about the backup, and returns the node's answer.
func (r *Reconciler) give(ctx context.Context, w *work, control string, argument any) (order.Backup, error) {
	var answer order.Backup
	text, err := json.Marshal(argument)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	p, err := r.Mounts.Pods.PodOf(ctx, w.vmi, pod.Current(w.vmi))
	if err == nil && p == nil {
		err = errors.New("the pod is gone")
	}
	if err != nil {
		return answer, fmt.Errorf("%s: %w", control, err)
	}
	reply, err := r.Nodes.Control(ctx, p, maxAnswer, control, string(text))
	if err != nil {
		return answer, fmt.Errorf("%s in pod %s on node %s: %w", control, p.Name, p.Spec.NodeName, err)
	}
	if json.Unmarshal(reply, &answer) != nil || answer.Name != w.name() {
		err = fmt.Errorf("%s: the node's answer is not about the backup", control)
	}
	return answer, err
}

// clip bounds foreign text.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
}

// typeOf returns KubeVirt's type of a backup.
func typeOf(answer order.Backup) api.BackupType {
	if answer.Incremental {
		return api.Incremental
	}
	return api.Full
}
