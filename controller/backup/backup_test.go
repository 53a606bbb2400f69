package backup

import (
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// makes takes a backup to its end.
func (g *rig) makes(name string, state order.BackupState, change ...func(*order.Backup)) {
	g.t.Helper()
	g.mounts(name)
	assert.Equal(g.t, g.reconcile(name).RequeueAfter, poll)
	assert.Equal(g.t, g.condition(name, api.ConditionProgressing), "True Initiated: Backup is in progress")
	g.node.ends(state, change...)
	g.reconcile(name)
}

// TestBackups: the first backup of a tracker is full, the next one follows its checkpoint, which the
// tracker has once the node has completed the backup. Each has the VM's disks on PVCs.
func TestBackups(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.tracker("nightly")
	g.tracker("other")
	g.backup("monday")
	g.mounts("monday")
	assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True Initializing: PVC backups is being mounted on the VM's node")
	g.reconcile("monday")
	assert.DeepEqual(t, g.get("monday").Finalizers, []string{finalizer})
	assert.Equal(t, g.latest("nightly"), "")
	a := g.node.ordered
	assert.Equal(t, a.Folder, "web/monday-2026-11-25_12-00-00")
	assert.Equal(t, a.Checkpoint, "monday-2026-11-25_12-00-00")
	assert.Assert(t, a.Since == "" && a.Quiesce && a.Container == strings.Repeat("a", 64) && a.Name == string(g.get("monday").UID))
	assert.DeepEqual(t, a.Disks, []order.BackupFile{{Disk: "root", File: "monday-root.qcow2"}, {Disk: "data", File: "monday-data.qcow2"}})
	running := g.vmi().Status.ChangedBlockTracking.BackupStatus
	assert.Assert(t, running.BackupName == "monday" && !running.Completed && running.QuiesceStatus == "" && len(running.Volumes) == 2)
	g.node.ends(order.BackupCompleted)
	g.reconcile("monday")
	assert.Assert(t, g.vmi().Status.ChangedBlockTracking.BackupStatus == nil)
	assert.Equal(t, g.condition("monday", api.ConditionComplete), "True Completed: Successfully completed VirtualMachineBackup")
	assert.Equal(t, g.condition("monday", api.ConditionProgressing), "False Completed: Successfully completed VirtualMachineBackup")
	assert.Equal(t, g.condition("monday", api.ConditionQuiesced), "True QuiesceSucceeded: Guest filesystem was successfully quiesced")
	done := g.get("monday")
	assert.Equal(t, done.Status.Type, api.Full)
	assert.Equal(t, *done.Status.CheckpointName, "monday-2026-11-25_12-00-00")
	assert.DeepEqual(t, done.Status.IncludedVolumes, []api.BackupVolumeInfo{{VolumeName: "root", DiskTarget: "vdr"}, {VolumeName: "data", DiskTarget: "vdd"}})
	assert.Equal(t, g.latest("nightly"), "monday-2026-11-25_12-00-00")
	assert.Assert(t, len(g.pods()) == 0 && len(done.Finalizers) == 0)
	g.Writes()
	g.reconcile("monday")
	assert.Equal(t, g.Writes(), "")

	g.backup("elsewhere", func(b *vmBackup) { b.Spec.Source.Name = "other" })
	g.makes("elsewhere", order.BackupCompleted)
	assert.DeepEqual(t, g.node.ordered.Keep, []string{"monday-2026-11-25_12-00-00"})
	g.backup("tuesday")
	g.makes("tuesday", order.BackupCompleted, func(b *order.Backup) { b.Warning = "no agent" })
	assert.Equal(t, g.node.ordered.Since, "monday-2026-11-25_12-00-00")
	assert.DeepEqual(t, g.node.ordered.Keep, []string{"elsewhere-2026-11-25_12-00-00"})
	assert.Equal(t, g.get("tuesday").Status.Type, api.Incremental)
	assert.Equal(t, g.condition("tuesday", api.ConditionComplete), "True CompletedWithWarning: Completed VirtualMachineBackup, warning: no agent")

	g.backup("forced", func(b *vmBackup) { b.Spec.ForceFullBackup, b.Spec.SkipQuiesce = true, true })
	g.makes("forced", order.BackupCompleted)
	a = g.node.ordered
	assert.Assert(t, a.Since == "" && !a.Quiesce)
	assert.DeepEqual(t, a.Keep, []string{"tuesday-2026-11-25_12-00-00", "elsewhere-2026-11-25_12-00-00"})

	g.backup("alone", func(b *vmBackup) {
		b.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: new(kubevirt.GroupVersion.Group), Kind: kindVM, Name: "web"}
	})
	g.makes("alone", order.BackupCompleted)
	assert.Assert(t, g.node.ordered.Checkpoint == "" && g.node.ordered.Since == "")
	assert.Assert(t, g.get("alone").Status.CheckpointName == nil)
	assert.Equal(t, g.latest("nightly"), "forced-2026-11-25_12-00-00")
}

// TestFails: a tracker keeps its checkpoint if a backup fails, or its VM ends.
func TestFails(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.tracker("nightly")
	g.backup("good")
	g.makes("good", order.BackupCompleted)
	g.backup("bad")
	g.makes("bad", order.BackupFailed, func(b *order.Backup) { b.Message = "no space" })
	assert.Equal(t, g.condition("bad", api.ConditionFailed), "True Failed: Backup has failed: no space")
	assert.Assert(t, g.get("bad").Status.CheckpointName == nil && len(g.pods()) == 0)

	g.backup("lost")
	g.mounts("lost")
	g.reconcile("lost")
	assert.NilError(t, g.Delete(t.Context(), &instance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}))
	g.instance("vmi-2")
	g.reconcile("lost")
	assert.Equal(t, g.condition("lost", api.ConditionFailed), "True SourceLost: Backup has failed: the VM ended before the backup did")
	assert.Equal(t, g.latest("nightly"), "good-2026-11-25_12-00-00")
}

// TestConflict: a backup is not complete before its tracker has the checkpoint.
func TestConflict(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.tracker("nightly")
	g.backup("monday")
	g.mounts("monday")
	g.reconcile("monday")
	g.node.ends(order.BackupCompleted)
	g.Fail = func(_ string, o client.Object) error {
		if _, is := o.(*tracker); is {
			return errors.New("no API server")
		}
		return nil
	}
	_, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "monday"}})
	assert.ErrorContains(t, err, "no API server")
	assert.Equal(t, g.condition("monday", api.ConditionComplete), "")
	g.Fail = nil
	g.reconcile("monday")
	assert.Equal(t, g.latest("nightly"), "monday-2026-11-25_12-00-00")
	assert.Assert(t, strings.HasPrefix(g.condition("monday", api.ConditionComplete), "True"))
}

// TestWaits: a backup says what it waits for, and does nothing meanwhile.
func TestWaits(t *testing.T) {
	g := newRig(t)
	g.backup("monday")
	waits := func(want string) {
		t.Helper()
		assert.Equal(t, g.reconcile("monday").RequeueAfter, retry)
		assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True Initializing: "+want)
		assert.Equal(t, len(g.pods()), 0)
	}
	change := func(change func(*instance)) {
		t.Helper()
		vmi := new(instance)
		assert.NilError(t, g.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, vmi))
		fakecluster.Change(t, g.Cluster, vmi, change)
	}
	waits("BackupTracker nightly does not exist")
	g.tracker("nightly")
	waits("VM default/web doesnt exist")
	g.vm()
	change(func(v *instance) { v.Status.Phase = kubevirt.Scheduled })
	waits("vm web is not running, cannot do backup")
	change(func(v *instance) {
		v.Status.Phase = kubevirt.Running
		v.Status.ChangedBlockTracking.State = kubevirt.ChangedBlockTrackingDisabled
	})
	waits("vm web has no ChangedBlockTracking, cannot start backup: give the VM or its namespace labels that spec.configuration.changedBlockTrackingLabelSelectors of the KubeVirt object selects")
	change(func(v *instance) { v.Status.ChangedBlockTracking.State = kubevirt.ChangedBlockTrackingInitializing })
	waits("vm web has no ChangedBlockTracking, cannot start backup: it begins in a moment")
	change(func(v *instance) {
		v.Status.ChangedBlockTracking.State = kubevirt.ChangedBlockTrackingEnabled
		v.Status.MigrationState = new(kubevirt.VirtualMachineInstanceMigrationState)
	})
	waits("vm web is currently migrating, waiting for migration to complete before starting backup")
	change(func(v *instance) {
		v.Status.MigrationState.Completed = true
		v.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "data", HotplugVolume: new(kubevirt.HotplugVolumeStatus), Phase: kubevirt.HotplugVolumeMounted}}
	})
	waits("volume data is not attached to the VM yet")
	change(func(v *instance) { v.Status.VolumeStatus = nil })
	for name, pvc := range map[string]corev1.PersistentVolumeClaimSpec{
		"PVC block must have volumeMode Filesystem": {VolumeMode: new(corev1.PersistentVolumeBlock)},
		"PVC reads is read-only":                    {AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}},
	} {
		key := strings.Fields(name)[1]
		g.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key}, Spec: pvc})
		fakecluster.Change(t, g.Cluster, g.get("monday"), func(b *vmBackup) { b.Spec.PvcName = &key })
		waits(name)
	}
	fakecluster.Change(t, g.Cluster, g.get("monday"), func(b *vmBackup) { b.Spec.PvcName = new("gone") })
	waits("PVC gone does not exist")
	fakecluster.Change(t, g.Cluster, g.get("monday"), func(b *vmBackup) { b.Spec.PvcName = new("claim-root") })
	g.Add(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claim-root"},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	})
	waits("PVC claim-root is volume root of the VM; use another one for backups")
	fakecluster.Change(t, g.Cluster, g.get("monday"), func(b *vmBackup) { b.Spec.PvcName = new("backups") })

	g.backup("first")
	g.mounts("first")
	g.reconcile("first")
	assert.Equal(t, g.reconcile("monday").RequeueAfter, retry)
	assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True Initializing: another backup first is already in progress")
	g.node.ends(order.BackupCompleted)
	g.reconcile("first")
	g.node.fail = errors.New("no node")
	g.mounts("monday")
	assert.Equal(t, g.reconcile("monday").RequeueAfter, retry)
	assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True Initiated: backup in pod own on node node-1: no node")
}

// TestAborts: a backup that is deleted stays until its node has ended it.
func TestAborts(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.tracker("nightly")
	g.backup("waiting", func(b *vmBackup) { b.Spec.PvcName = new("gone") })
	g.reconcile("waiting")
	assert.NilError(t, g.Delete(t.Context(), g.get("waiting")))
	assert.Assert(t, !g.Exists(t, &vmBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "waiting"}}))

	g.backup("monday")
	g.mounts("monday")
	g.reconcile("monday")
	uid := string(g.get("monday").UID)
	assert.NilError(t, g.Delete(t.Context(), g.get("monday")))
	assert.Equal(t, g.reconcile("monday").RequeueAfter, poll)
	assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True Aborting: Backup is aborting")
	assert.DeepEqual(t, g.node.cancelled, []string{uid})
	g.node.ends(order.BackupFailed)
	g.reconcile("monday")
	assert.Assert(t, !g.Exists(t, &vmBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "monday"}}))
	assert.Assert(t, len(g.pods()) == 0 && g.latest("nightly") == "")
}

// TestTrackerDeleted: a backup whose tracker is deleted, or made again for another VM, still ends on its node: else no
// other backup could begin, and QEMU would go on copying.
func TestTrackerDeleted(t *testing.T) {
	for _, again := range []bool{false, true} {
		g := newRig(t)
		g.vm()
		g.tracker("nightly")
		lose := func() {
			nightly := &tracker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}
			assert.NilError(t, client.IgnoreNotFound(g.Delete(t.Context(), nightly)))
			if again {
				nightly = &tracker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}
				nightly.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: new(kubevirt.GroupVersion.Group), Kind: kindVM, Name: "other"}
				g.Add(t, nightly)
			}
		}
		g.backup("monday")
		g.mounts("monday")
		g.reconcile("monday")
		lose()
		g.reconcile("monday")
		assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True Initiated: Backup is in progress")
		g.node.ends(order.BackupCompleted)
		g.reconcile("monday")
		assert.Equal(t, g.condition("monday", api.ConditionComplete), "True Completed: Successfully completed VirtualMachineBackup")
		assert.Assert(t, len(g.pods()) == 0 && len(g.get("monday").Finalizers) == 0)

		g.backup("alone", func(b *vmBackup) {
			b.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: new(kubevirt.GroupVersion.Group), Kind: kindVM, Name: "web"}
		})
		g.makes("alone", order.BackupCompleted)

		if again {
			continue
		}
		g.tracker("nightly")
		g.backup("tuesday")
		g.mounts("tuesday")
		g.reconcile("tuesday")
		uid := string(g.get("tuesday").UID)
		lose()
		assert.NilError(t, g.Delete(t.Context(), g.get("tuesday")))
		g.reconcile("tuesday")
		assert.DeepEqual(t, g.node.cancelled, []string{uid})
		g.node.ends(order.BackupFailed)
		g.reconcile("tuesday")
		assert.Assert(t, !g.Exists(t, &vmBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tuesday"}}))
		assert.Equal(t, len(g.pods()), 0)
	}
}

// TestTracking: VMs that the configuration selects are tracked once they run, and not any more when it
// does not select them.
func TestTracking(t *testing.T) {
	for by, selectors := range map[string]*kubevirt.ChangedBlockTrackingSelectors{
		"VM":        {VirtualMachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"backup": "yes"}}},
		"namespace": {NamespaceLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}},
	} {
		t.Run(by, func(t *testing.T) {
			g := newRig(t)
			g.vm()
			vmi := new(instance)
			assert.NilError(t, g.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, vmi))
			fakecluster.Change(t, g.Cluster, vmi, func(v *instance) { v.Status.Phase, v.Status.ChangedBlockTracking = kubevirt.Scheduled, nil })
			states := func(wantVM, wantVMI kubevirt.ChangedBlockTrackingState) {
				t.Helper()
				key := client.ObjectKey{Namespace: namespace, Name: "web"}
				_, err := g.tracking.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				assert.NilError(t, err)
				vm := new(kubevirt.VirtualMachine)
				assert.NilError(t, g.Get(t.Context(), key, vm))
				assert.NilError(t, g.Get(t.Context(), key, vmi))
				assert.Equal(t, state(vm.Status.ChangedBlockTracking), wantVM)
				assert.Equal(t, state(vmi.Status.ChangedBlockTracking), wantVMI)
			}
			states("", "")
			kv := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "nodevirt", Name: "kubevirt"}}
			kv.Spec.Configuration.ChangedBlockTrackingLabelSelectors = selectors
			g.Add(t, kv)
			states(kubevirt.ChangedBlockTrackingInitializing, kubevirt.ChangedBlockTrackingInitializing)
			fakecluster.Change(t, g.Cluster, vmi, func(v *instance) { v.Status.Phase = kubevirt.Running })
			states(kubevirt.ChangedBlockTrackingEnabled, kubevirt.ChangedBlockTrackingEnabled)
			fakecluster.Change(t, g.Cluster, vmi, func(v *instance) {
				v.Status.ChangedBlockTracking.BackupStatus = &kubevirt.VirtualMachineInstanceBackupStatus{BackupName: "monday"}
			})
			fakecluster.Change(t, g.Cluster, kv, func(k *kubevirt.KubeVirt) { k.Spec.Configuration.ChangedBlockTrackingLabelSelectors = nil })
			states(kubevirt.ChangedBlockTrackingDisabled, kubevirt.ChangedBlockTrackingDisabled)
			assert.Equal(t, vmi.Status.ChangedBlockTracking.BackupStatus.BackupName, "monday")
			g.Writes()
			states(kubevirt.ChangedBlockTrackingDisabled, kubevirt.ChangedBlockTrackingDisabled)
			assert.Equal(t, g.Writes(), "")
		})
	}
}
