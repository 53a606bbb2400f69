package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/vm"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const namespace = "default"

// rig is a reconciler with a cluster in memory. The test is the driver that fills and binds
// PVCs, and the controller of VMs.
type rig struct {
	*fakecluster.Cluster
	t   *testing.T
	now time.Time
	r   *Reconciler
	// deleted are CDI's objects that were deleted, filled those for PVCs with content, if the cluster has CDI.
	deleted []string
	filled  []metav1.ObjectMeta
	// marked are CDI's objects whose PVCs are replaced, and for which restores.
	marked []string
	cdi    bool
	// late says that Kubernetes binds PVCs once a pod uses them.
	late bool
	// smaller says that the driver makes smaller volumes than it is asked for.
	smaller bool
	// lost are VolumeSnapshots that do not exist.
	lost map[string]bool
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, now: time.Now().Truncate(time.Second)}
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types: []func(*runtime.Scheme) error{
			corev1.AddToScheme, appsv1.AddToScheme, storagev1.AddToScheme, kubevirt.AddToScheme, api.AddToScheme, exportapi.AddToScheme,
		},
		Status: []client.Object{
			new(api.VirtualMachineSnapshot), new(api.VirtualMachineSnapshotContent), new(api.VirtualMachineRestore),
			new(kubevirt.VirtualMachine), new(kubevirt.VirtualMachineInstance),
		},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			return b.WithIndex(new(api.VirtualMachineRestore), indexTarget, targetName)
		},
	})
	g.r = NewReconciler(Options{
		Client: g.Cached(), Live: g.Client, Uncached: g.Cached(), Snapshots: driver{g}, DataVolumes: g, Binder: g, Events: g.Recorder,
		Now: func() time.Time { return g.now },
	})
	g.Add(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "csi"}, Provisioner: "csi"})
	return g
}

// driver has VolumeSnapshots that need 2 GiB when they are restored.
type driver struct{ g *rig }

func (d driver) Get(_ context.Context, _, name string) (*volumesnapshot.Snapshot, error) {
	if d.g.lost[name] {
		return nil, nil
	}
	return &volumesnapshot.Snapshot{Name: name, RestoreSize: "2Gi"}, nil
}

func (g *rig) DeleteOwned(_ context.Context, _, name string, _ metav1.Object) error {
	g.deleted = append(g.deleted, name)
	return nil
}

// ChangeOwners is CDI's: no DataVolume exists.
func (g *rig) ChangeOwners(context.Context, string, string, func([]metav1.OwnerReference) []metav1.OwnerReference) error {
	return nil
}

func volumesOf(root, data, dv string) []kubevirt.Volume {
	made := kubevirt.Volume{Name: "made"}
	made.DataVolume = &kubevirt.DataVolumeSource{Name: dv}
	return []kubevirt.Volume{fakecluster.ClaimVolume("root", root), fakecluster.ClaimVolume("data", data), made}
}

// vm adds a VM that has changed since its snapshot, which this adds, too.
func (g *rig) vm() *kubevirt.VirtualMachine {
	g.t.Helper()
	now := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	now.Spec.RunStrategy = new(kubevirt.RunStrategyManual)
	now.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	now.Spec.Template.Spec.Hostname = "now"
	now.Spec.Template.Spec.Volumes = volumesOf("claim-root", "claim-other", "dv")
	now.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "dv"}}}
	g.Add(g.t, now)
	before := api.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace, UID: now.UID, Labels: map[string]string{"app": "web"}}}
	before.Spec = *now.Spec.DeepCopy()
	before.Spec.RunStrategy = new(kubevirt.RunStrategyAlways)
	before.Spec.Template.Spec.Hostname = "before"
	before.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "claim-data"
	before.Spec.Template.Spec.Volumes = append(before.Spec.Template.Spec.Volumes, fakecluster.DumpVolume("dump", "claim-dump"))
	before.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "large", RevisionName: "captured"}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "captured"}}
	revision.Data.Raw = []byte(`{"kind":"large"}`)
	content := &api.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "content"}}
	content.Spec.Source.VirtualMachine = &before
	class := "csi"
	for volume, claim := range map[string]string{"root": "claim-root", "data": "claim-data", "made": "dv", "dump": "claim-dump"} {
		name := "vs-" + volume
		b := api.VolumeBackup{VolumeName: volume, VolumeSnapshotName: &name}
		b.PersistentVolumeClaim.ObjectMeta = metav1.ObjectMeta{Name: claim, Labels: map[string]string{"of": claim},
			Annotations: map[string]string{"mine": "yes", "pv.kubernetes.io/bind-completed": "yes"}}
		b.PersistentVolumeClaim.Spec = corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: "pv",
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, b)
	}
	slices.SortFunc(content.Spec.VolumeBackups, func(a, b api.VolumeBackup) int { return strings.Compare(a.VolumeName, b.VolumeName) })
	s := &api.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "snapshot"}}
	yes := true
	s.Status = &api.VirtualMachineSnapshotStatus{Phase: api.Succeeded, ReadyToUse: &yes, SourceUID: &now.UID, VirtualMachineSnapshotContentName: &content.Name}
	g.Add(g.t, revision, content, s)
	for _, name := range []string{"claim-root", "claim-data", "claim-other", "dv"} {
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		pvc.Spec.VolumeName = "pv-" + name
		if name == "dv" {
			pvc.OwnerReferences = []metav1.OwnerReference{ownedBy(now)}
		}
		pvc.Status.Phase = corev1.ClaimBound
		if err := g.Create(g.t.Context(), pvc); err != nil {
			g.t.Fatal(err)
		}
		fakecluster.Change(g.t, g.Cluster, content, func(c *api.VirtualMachineSnapshotContent) {
			for i := range c.Spec.VolumeBackups {
				if b := &c.Spec.VolumeBackups[i]; b.PersistentVolumeClaim.Name == name {
					b.PersistentVolumeClaim.UID = pvc.UID
				}
			}
		})
	}
	return now
}

// restore adds a restore of the snapshot.
func (g *rig) restore(target string, change ...func(*api.VirtualMachineRestoreSpec)) *api.VirtualMachineRestore {
	g.t.Helper()
	rs := &api.VirtualMachineRestore{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "back", UID: "uid-back", CreationTimestamp: metav1.NewTime(g.now), Finalizers: []string{finalizer},
	}}
	group := kubevirt.GroupVersion.Group
	rs.Spec.Target = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kindVM, Name: target}
	rs.Spec.VirtualMachineSnapshotName = "snapshot"
	for _, c := range change {
		c(&rs.Spec)
	}
	g.Add(g.t, rs)
	return rs
}

func (g *rig) reconcile() (ctrl.Result, error) {
	g.t.Helper()
	return g.r.Reconcile(g.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "back"}})
}

// finish reconciles, and does the driver's work, until the restore ends.
func (g *rig) finish(rs *api.VirtualMachineRestore) *api.VirtualMachineRestore {
	g.t.Helper()
	for range 60 {
		if _, err := g.reconcile(); err != nil {
			g.t.Fatal(err)
		}
		g.bind()
		if g.Exists(g.t, rs); ended(rs) {
			return rs
		}
	}
	g.t.Fatalf("the restore does not end: %+v", rs.Status)
	return nil
}

// bind binds each PVC, as Kubernetes and a driver do: to the PersistentVolume that it names and that is reserved for it,
// or to a new one. A PersistentVolume whose PVC is gone goes, too, unless its reclaim policy is Retain.
func (g *rig) bind() {
	g.t.Helper()
	var list corev1.PersistentVolumeClaimList
	if err := g.List(g.t.Context(), &list); err != nil {
		g.t.Fatal(err)
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		c := &list.Items[i]
		there[c.UID] = true
		if c.Status.Phase == corev1.ClaimBound || g.late && c.Spec.VolumeName == "" && !g.consumed(c.Name) {
			continue
		}
		ref := corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.Spec.VolumeName}}
		if c.Spec.VolumeName == "" {
			pv.Name = "pv-" + string(c.UID)
			pv.Spec.ClaimRef, pv.Spec.PersistentVolumeReclaimPolicy = &ref, corev1.PersistentVolumeReclaimDelete
			pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]}
			if g.smaller {
				pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			}
			pv.Spec.StorageClassName = "csi"
			if from := c.Spec.DataSource; from != nil {
				pv.Annotations = map[string]string{"content": from.Name}
			}
			g.Add(g.t, pv)
		} else if !g.Exists(g.t, pv) || pv.Spec.ClaimRef.Name != c.Name || pv.Spec.ClaimRef.UID != "" && pv.Spec.ClaimRef.UID != c.UID {
			continue
		}
		fakecluster.Change(g.t, g.Cluster, pv, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = &ref })
		fakecluster.Change(g.t, g.Cluster, c, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Status.Phase = pv.Name, corev1.ClaimBound
		})
	}
	var volumes corev1.PersistentVolumeList
	if err := g.List(g.t.Context(), &volumes); err != nil {
		g.t.Fatal(err)
	}
	for i := range volumes.Items {
		pv := &volumes.Items[i]
		if uid := pv.Spec.ClaimRef.UID; uid != "" && !there[uid] && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			if err := g.Delete(g.t.Context(), pv); err != nil {
				g.t.Fatal(err)
			}
		}
	}
}

// consumed reports whether a pod uses a PVC.
func (g *rig) consumed(pvc string) bool {
	g.t.Helper()
	var pods corev1.PodList
	if err := g.List(g.t.Context(), &pods); err != nil {
		g.t.Fatal(err)
	}
	return slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == pvc
		})
	})
}

// Bind adds a pod that uses PVCs, as package vmi does.
func (g *rig) Bind(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, owner metav1.OwnerReference, pvcs []*corev1.PersistentVolumeClaim,
) (string, error) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: "consumer", OwnerReferences: []metav1.OwnerReference{owner}}}
	for _, pvc := range pvcs {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: pvc.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc.Name},
		}})
	}
	return " It waits.", client.IgnoreAlreadyExists(g.Create(ctx, p))
}

// Release removes the pod.
func (g *rig) Release(ctx context.Context, _ types.UID, _ client.ObjectKey) (bool, error) {
	err := g.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "consumer"}})
	return err != nil, client.IgnoreNotFound(err)
}

// content returns of which VolumeSnapshot the disk of a PVC is; "" for another disk.
func (g *rig) content(pvc string) string {
	g.t.Helper()
	c := g.claim(pvc)
	if c == nil || c.Status.Phase != corev1.ClaimBound {
		return ""
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: c.Spec.VolumeName}}
	if !g.Exists(g.t, pv) || pv.Spec.ClaimRef.UID != c.UID {
		return ""
	}
	return pv.Annotations["content"]
}

func (g *rig) claim(name string) *corev1.PersistentVolumeClaim {
	g.t.Helper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if !g.Exists(g.t, pvc) {
		return nil
	}
	return pvc
}

func claims(v *kubevirt.VirtualMachine) string {
	var names []string
	for _, v := range v.Spec.Template.Spec.Volumes {
		if v.DataVolume != nil {
			names = append(names, "dv:"+v.DataVolume.Name)
		} else {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return strings.Join(names, " ")
}

func reason(rs *api.VirtualMachineRestore, kind api.ConditionType) string {
	for _, c := range rs.Status.Conditions {
		if c.Type == kind {
			return c.Reason
		}
	}
	return ""
}

// TestSameVM: the VM has its former spec on new PVCs, and keeps its run strategy. The disk of its
// template is replaced.
func TestSameVM(t *testing.T) {
	g := newRig(t)
	now := g.vm()
	rs := g.restore("web")
	if _, err := g.reconcile(); err != nil {
		t.Fatal(err)
	}
	if g.Exists(t, now); now.Status.RestoreInProgress == nil || now.Spec.Template.Spec.Hostname != "now" {
		t.Errorf("before PVCs are bound, the VM is locked by %v, its host name %s", now.Status.RestoreInProgress, now.Spec.Template.Spec.Hostname)
	}
	g.finish(rs)
	g.Exists(t, now)
	if *rs.Status.Complete != true || rs.Status.RestoreTime == nil || now.Status.RestoreInProgress != nil {
		t.Errorf("status %+v, lock %v", rs.Status, now.Status.RestoreInProgress)
	}
	if s := now.Spec; s.Template.Spec.Hostname != "before" || *s.RunStrategy != kubevirt.RunStrategyManual ||
		claims(now) != "restore-uid-back-root restore-uid-back-data dv:restore-uid-back-made" || s.DataVolumeTemplates[0].Name != "restore-uid-back-made" {
		t.Errorf("spec %+v, PVCs %s", s, claims(now))
	}
	pvc := g.claim("restore-uid-back-data")
	size := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	if pvc.Spec.DataSource.Name != "vs-data" || pvc.Labels["of"] != "claim-data" || !metav1.IsControlledBy(pvc, now) || size.String() != "2Gi" ||
		pvc.Annotations["mine"] != "yes" || pvc.Annotations["pv.kubernetes.io/bind-completed"] != "" || pvc.Spec.VolumeName == "pv" {
		t.Errorf("PVC %+v", pvc)
	}
	if fmt.Sprint(rs.Status.DeletedDataVolumes, g.deleted) != "[dv] [dv]" || g.claim("dv") != nil || g.claim("claim-data") == nil {
		t.Errorf("deleted %v; PVCs of the user are %v", rs.Status.DeletedDataVolumes, g.claim("claim-data"))
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: now.Spec.Instancetype.RevisionName}}
	if !g.Exists(t, revision) || revision.Name == "captured" || !metav1.IsControlledBy(revision, now) {
		t.Errorf("revision %+v", revision.ObjectMeta)
	}
}

// TestObsoleteDiskOfAnother: the disk of a former template that another VM uses is released, and not deleted.
func TestObsoleteDiskOfAnother(t *testing.T) {
	g := newRig(t)
	g.vm()
	other := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}
	other.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	other.Spec.Template.Spec.Volumes = []kubevirt.Volume{fakecluster.ClaimVolume("disk", "dv")}
	g.Add(t, other)
	g.finish(g.restore("web"))
	if pvc := g.claim("dv"); pvc == nil || len(pvc.OwnerReferences) > 0 || len(g.deleted) > 0 {
		t.Errorf("PVC %+v, deleted %v", pvc, g.deleted)
	}
}

// TestState: a VM's UEFI variables and TPM come back with it, and take the place of those that it has.
func TestState(t *testing.T) {
	for target, left := range map[string]string{"web": "kept restored", "copy": "former kept restored"} {
		t.Run(target, func(t *testing.T) {
			g := newRig(t)
			now := g.vm()
			content := &api.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "content"}}
			fakecluster.Change(t, g.Cluster, content, func(c *api.VirtualMachineSnapshotContent) {
				b := *c.Spec.VolumeBackups[0].DeepCopy()
				b.VolumeName, b.VolumeSnapshotName = pod.SavedState("web"), new("vs-state")
				b.PersistentVolumeClaim.Labels = map[string]string{pod.StateLabel: "web"}
				b.PersistentVolumeClaim.OwnerReferences = []metav1.OwnerReference{ownedBy(now)}
				c.Spec.VolumeBackups = append(c.Spec.VolumeBackups, b)
			})
			for _, name := range []string{"former", "kept"} {
				pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: name, Labels: map[string]string{pod.StateLabel: "web"},
				}}
				if name == "former" {
					pvc.OwnerReferences = []metav1.OwnerReference{ownedBy(now)}
				}
				g.Add(t, pvc)
			}
			g.finish(g.restore(target, func(s *api.VirtualMachineRestoreSpec) {
				s.VolumeRestoreOverrides = []api.VolumeRestoreOverride{{VolumeName: pod.SavedState("web"), RestoreName: "restored"}}
			}))
			made := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: target}}
			if !g.Exists(t, made) {
				t.Fatal("no VM")
			}
			var all corev1.PersistentVolumeClaimList
			if err := g.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			var there []string
			for _, name := range []string{"former", "kept", "restored"} {
				if g.claim(name) != nil {
					there = append(there, name)
				}
			}
			if found := pod.FindVMState(made, all.Items); found == nil || found.Name != "restored" || strings.Join(there, " ") != left {
				t.Errorf("the VM's state is in %+v; PVCs %v", found, there)
			}
			if _, labelled := g.claim("kept").Labels[pod.StateLabel]; labelled != (target == "copy") {
				t.Errorf("the label of the PVC that a user keeps: %t", labelled)
			}
		})
	}
}

// TestNewVM: a missing target is created, halted and patched. It has no dump of the source's memory.
func TestNewVM(t *testing.T) {
	g := newRig(t)
	old := g.vm()
	content := &api.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "content"}}
	fakecluster.Change(t, g.Cluster, content, func(c *api.VirtualMachineSnapshotContent) {
		at := slices.IndexFunc(c.Spec.VolumeBackups, func(b api.VolumeBackup) bool { return b.VolumeName == "data" })
		c.Spec.VolumeBackups[at].PersistentVolumeClaim.OwnerReferences = []metav1.OwnerReference{ownedBy(old)}
	})
	rs := g.finish(g.restore("copy", func(s *api.VirtualMachineRestoreSpec) {
		s.Patches = []string{`{"op": "replace", "path": "/spec/template/spec/hostname", "value": "copy"}`}
		s.VolumeRestorePolicy = new(api.VolumeRestorePolicyPrefixTargetName)
		s.VolumeRestoreOverrides = []api.VolumeRestoreOverride{{VolumeName: "data", RestoreName: "mine", Labels: map[string]string{"a": "b"}}}
	}))
	made := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "copy"}}
	if !g.Exists(t, made) || *made.Spec.RunStrategy != kubevirt.RunStrategyHalted || made.Spec.Template.Spec.Hostname != "copy" ||
		made.Labels["app"] != "web" || claims(made) != "copy-root mine dv:copy-made" || made.Spec.Template.Spec.Domain.Firmware != nil {
		t.Errorf("VM %+v, PVCs %s", made, claims(made))
	}
	if slices.ContainsFunc(rs.Status.Restores, func(one api.VolumeRestore) bool { return one.VolumeName == "dump" }) {
		t.Errorf("restores %+v", rs.Status.Restores)
	}
	if !metav1.IsControlledBy(rs, made) {
		t.Errorf("the restore's owners: %+v", rs.OwnerReferences)
	}
	pvc := g.claim("mine")
	if _, marked := pvc.Annotations["restore.kubevirt.io/owned-by-vm"]; pvc.Labels["a"] != "b" || !metav1.IsControlledBy(pvc, made) || marked {
		t.Errorf("PVC %+v", pvc)
	}
	if pvc := g.claim("copy-root"); len(pvc.OwnerReferences) > 0 { // the source's had no owner
		t.Errorf("PVC %+v", pvc)
	}
	if g.Exists(t, old); old.Spec.Template.Spec.Hostname != "now" || g.claim("dv") == nil || len(rs.Status.DeletedDataVolumes) > 0 {
		t.Error("the source has changed")
	}
}

// TestLostVM: a VM that was deleted comes back with its SMBIOS UUID.
func TestLostVM(t *testing.T) {
	g := newRig(t)
	old := g.vm()
	if err := g.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	g.finish(g.restore("web"))
	made := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	if !g.Exists(t, made) || made.Spec.Template.Spec.Domain.Firmware.UUID != vm.SystemUUID(old.UID) {
		t.Errorf("VM %+v", made.Spec.Template)
	}
}

// TestInPlace: the PVCs keep their names; those that are there are replaced.
func TestInPlace(t *testing.T) {
	g := newRig(t)
	now := g.vm()
	old := g.claim("claim-root").UID
	isController := true
	of := []metav1.OwnerReference{{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: datavolume.Kind, Name: "dv", UID: "uid-dv", Controller: &isController}}
	fakecluster.Change(t, g.Cluster, g.claim("dv"), func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = of })
	content := &api.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "content"}}
	fakecluster.Change(t, g.Cluster, content, func(c *api.VirtualMachineSnapshotContent) {
		at := slices.IndexFunc(c.Spec.VolumeBackups, func(b api.VolumeBackup) bool { return b.VolumeName == "made" })
		c.Spec.VolumeBackups[at].PersistentVolumeClaim.OwnerReferences = of
	})
	g.finish(g.restore("web", func(s *api.VirtualMachineRestoreSpec) { s.VolumeRestorePolicy = new(api.VolumeRestorePolicyInPlace) }))
	if g.Exists(t, now); claims(now) != "claim-root claim-data dv:dv" || g.claim("claim-root").UID == old ||
		g.content("claim-root") != "vs-root" || g.content("claim-data") != "vs-data" || g.content("dv") != "vs-made" {
		t.Errorf("PVCs %s with the contents %q %q %q", claims(now), g.content("claim-root"), g.content("claim-data"), g.content("dv"))
	}
	if left := g.temporary(); left != "" {
		t.Errorf("left over: %s", left)
	}
	pvc := g.claim("dv")
	if len(pvc.OwnerReferences) > 0 || pvc.Annotations[datavolume.AnnotationFilledFor] != "dv" || fmt.Sprint(g.marked) != "[dv for back]" {
		t.Errorf("PVC of a DataVolume %+v, marked %v", pvc.ObjectMeta, g.marked)
	}
}

// TestLateBinding: where PVCs are bound once a pod uses them, a restore has them bound before it is complete, and deletes
// no disk before.
func TestLateBinding(t *testing.T) {
	for _, policy := range []api.VolumeRestorePolicy{api.VolumeRestorePolicyInPlace, api.VolumeRestorePolicyRandomizeNames} {
		g := newRig(t)
		g.late = true
		fakecluster.Change(t, g.Cluster, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "csi"}}, func(c *storagev1.StorageClass) {
			c.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
		})
		g.vm()
		rs := g.restore("web", func(s *api.VirtualMachineRestoreSpec) { s.VolumeRestorePolicy = &policy })
		if _, err := g.reconcile(); err != nil {
			t.Fatal(err)
		}
		if g.Exists(t, rs); !strings.Contains(reason(rs, api.ConditionProgressing), "It waits.") || g.claim("dv").Spec.VolumeName != "pv-dv" {
			t.Errorf("%s: before PVCs are bound: %q", policy, reason(rs, api.ConditionProgressing))
		}
		g.finish(rs)
		for _, one := range rs.Status.Restores {
			if got := g.content(one.PersistentVolumeClaimName); got != "vs-"+one.VolumeName {
				t.Errorf("%s: volume %s has %q", policy, one.VolumeName, got)
			}
		}
		if g.Exists(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "consumer"}}) {
			t.Errorf("%s: a pod is left", policy)
		}
	}
}

// TestRunning: what a restore does with a target that runs.
func TestRunning(t *testing.T) {
	for policy, want := range map[api.TargetReadinessPolicy]string{
		api.VirtualMachineRestoreFailImmediate:          "Restore target not ready",
		api.VirtualMachineRestoreWaitGracePeriodAndFail: "Restore target failed to be ready within 5m0s",
		api.VirtualMachineRestoreWaitEventually:         "",
		api.VirtualMachineRestoreStopTarget:             "",
	} {
		g := newRig(t)
		now := g.vm()
		vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
		g.Add(t, vmi)
		rs := g.restore("web", func(s *api.VirtualMachineRestoreSpec) { s.TargetReadinessPolicy = &policy })
		if _, err := g.reconcile(); err != nil {
			t.Fatal(err)
		}
		g.now = g.now.Add(6 * time.Minute)
		if _, err := g.reconcile(); err != nil {
			t.Fatal(err)
		}
		g.Exists(t, rs)
		g.Exists(t, now)
		if got := reason(rs, api.ConditionFailure); got != want || len(rs.Status.Restores) > 0 {
			t.Errorf("%s: failure %q, want %q, restores %v", policy, got, want, rs.Status.Restores)
		}
		stops := len(now.Status.StateChangeRequests) > 0 && *now.Status.StateChangeRequests[0].UID == vmi.UID
		if stops != (policy == api.VirtualMachineRestoreStopTarget) {
			t.Errorf("%s: requests %+v", policy, now.Status.StateChangeRequests)
		}
		if want != "" {
			continue
		}
		if err := g.Delete(t.Context(), vmi); err != nil {
			t.Fatal(err)
		}
		if g.finish(rs); !*rs.Status.Complete {
			t.Errorf("%s: status %+v", policy, rs.Status)
		}
	}
}

// TestRefusals: restores that change nothing, in words.
func TestRefusals(t *testing.T) {
	for want, prepare := range map[string]func(g *rig) string{
		"restore source and restore target are different": func(g *rig) string {
			other := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}
			g.Add(g.t, other)
			return "other"
		},
		"failed and is invalid to use": func(g *rig) string {
			s := &api.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "snapshot"}}
			fakecluster.Change(g.t, g.Cluster, s, func(s *api.VirtualMachineSnapshot) { s.Status.Phase = api.Failed })
			return "web"
		},
		"PVC copy-root exists": func(g *rig) string {
			if err := g.Create(g.t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "copy-root"}}); err != nil {
				g.t.Fatal(err)
			}
			return "copy"
		},
	} {
		g := newRig(t)
		g.vm()
		rs := g.restore(prepare(g), func(s *api.VirtualMachineRestoreSpec) {
			s.VolumeRestorePolicy = new(api.VolumeRestorePolicyPrefixTargetName)
		})
		_, err := g.reconcile()
		if g.Exists(t, rs); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(reason(rs, api.ConditionProgressing), want) {
			t.Errorf("%v, condition %q; want %q", err, reason(rs, api.ConditionProgressing), want)
		}
	}
}

// TestDeletedRestore: a restore that is deleted unlocks its VM.
func TestDeletedRestore(t *testing.T) {
	g := newRig(t)
	now := g.vm()
	rs := g.restore("web")
	if _, err := g.reconcile(); err != nil {
		t.Fatal(err)
	}
	if err := g.Delete(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	if _, err := g.reconcile(); err != nil {
		t.Fatal(err)
	}
	if g.Exists(t, now); now.Status.RestoreInProgress != nil || g.Exists(t, rs) {
		t.Errorf("locked by %v", now.Status.RestoreInProgress)
	}
}

// TestDeletedCopy: a restore that is deleted before its VM exists takes its PVCs along, and no other.
func TestDeletedCopy(t *testing.T) {
	g := newRig(t)
	g.vm()
	rs := g.restore("copy", func(s *api.VirtualMachineRestoreSpec) {
		s.VolumeRestorePolicy = new(api.VolumeRestorePolicyPrefixTargetName)
	})
	if _, err := g.reconcile(); err != nil {
		t.Fatal(err)
	}
	fakecluster.Change(t, g.Cluster, g.claim("copy-data"), func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil })
	if err := g.Delete(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	if _, err := g.reconcile(); err != nil {
		t.Fatal(err)
	}
	if g.claim("copy-root") != nil || g.claim("copy-made") != nil || g.claim("copy-data") == nil || g.claim("claim-root") == nil || g.Exists(t, rs) {
		t.Errorf("PVC copy-root %v, copy-data %v", g.claim("copy-root"), g.claim("copy-data"))
	}
}

// TestPatchedName: patches give a VM no other name than the target's.
func TestPatchedName(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.restore("copy", func(s *api.VirtualMachineRestoreSpec) {
		s.Patches = []string{`{"op": "replace", "path": "/metadata/name", "value": "other"}`}
	})
	var err error
	for range 4 {
		_, err = g.reconcile()
		g.bind()
	}
	if err == nil || !strings.Contains(err.Error(), "the patches rename the VM") {
		t.Errorf("%v", err)
	}
}

// TestPatches: replace sets what is missing, an index beyond a list is an error, and so is a missing object.
func TestPatches(t *testing.T) {
	vm := &kubevirt.VirtualMachine{Spec: kubevirt.VirtualMachineSpec{Template: new(kubevirt.VirtualMachineInstanceTemplateSpec)}}
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default"}}
	const devices = "/spec/template/spec/domain/devices/"
	made, err := Patched(vm, []string{`{"op": "replace", "path": "` + devices + `interfaces/0/macAddress", "value": "DE-AD-00-00-BE-AF"}`})
	if err != nil || made.Spec.Template.Spec.Domain.Devices.Interfaces[0].MacAddress != "DE-AD-00-00-BE-AF" {
		t.Errorf("%+v, %v", made, err)
	}
	for _, path := range []string{devices + "interfaces/1", devices + "tpm/persistent"} {
		if made, err := Patched(vm, []string{`{"op": "replace", "path": "` + path + `", "value": {}}`}); err == nil {
			t.Errorf("%s: %+v", path, made.Spec.Template.Spec.Domain.Devices)
		}
	}
}

// TestPatchesCopy: patches that copy a VM into itself again and again end at the size of an object.
func TestPatchesCopy(t *testing.T) {
	vm := &kubevirt.VirtualMachine{Spec: kubevirt.VirtualMachineSpec{Template: new(kubevirt.VirtualMachineInstanceTemplateSpec)}}
	var patches []string
	for n := range MaxPatches {
		patches = append(patches, fmt.Sprintf(`{"op": "copy", "from": "/spec", "path": "/spec/a%d"}`, n))
	}
	if _, err := Patched(vm, patches); err == nil || !strings.Contains(err.Error(), "larger than 512 KiB") {
		t.Errorf("%v", err)
	}
	if _, err := Patched(vm, patches[:3]); err != nil {
		t.Errorf("%v", err)
	}
}

// TestPatchesElements: patches give a VM no more elements of lists than an author, and each text is one operation.
func TestPatchesElements(t *testing.T) {
	vm := &kubevirt.VirtualMachine{Spec: kubevirt.VirtualMachineSpec{Template: new(kubevirt.VirtualMachineInstanceTemplateSpec)}}
	const add = `{"op": "add", "path": "/spec/template/spec/tolerations", "value": [{}%s]}`
	half := fmt.Sprintf(add, strings.Repeat(", {}", bounds.Elements/2))
	copied := []string{half, `{"op": "copy", "from": "/spec/template/spec/tolerations", "path": "/spec/template/spec/domain/devices/disks"}`}
	for want, patches := range map[string][]string{
		"have 8194 elements together": {fmt.Sprintf(add, strings.Repeat(", {}", bounds.Elements))},
		"spec.patches[1] makes the VM too large: the lists have 8194 elements together": copied,
		"1 texts have 2 operations": {`{"op": "test", "path": ""}, {"op": "test", "path": ""}`},
	} {
		if _, err := Patched(vm, patches); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if made, err := Patched(vm, copied[:1]); err != nil || len(made.Spec.Template.Spec.Tolerations) != bounds.Elements/2+1 {
		t.Errorf("%v", err)
	}
}
