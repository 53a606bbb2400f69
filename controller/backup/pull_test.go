package backup

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/export"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

func pullMode(b *vmBackup) {
	b.Spec.Mode, b.Spec.TokenSecretRef = new(api.PullMode), "token"
	b.Spec.TTLDuration = &metav1.Duration{Duration: 30 * time.Minute}
}

// vmi returns the VM's instance as the API server has it.
func (g *rig) vmi() *instance {
	g.t.Helper()
	vmi := new(instance)
	assert.NilError(g.t, g.Get(g.t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, vmi))
	return vmi
}

// exported returns a backup's export; nil for none.
func (g *rig) exported(name string) *exportapi.VirtualMachineExport {
	g.t.Helper()
	e := &exportapi.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if !g.Exists(g.t, e) {
		return nil
	}
	return e
}

// serves does what the controller of exports does for a backup, with a container of an ID.
func (g *rig) serves(name, id string) {
	g.t.Helper()
	e := g.exported(name)
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: export.PodName(e)}}
	if !g.Exists(g.t, p) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: exportapi.SchemeGroupVersion.String(), Kind: "VirtualMachineExport", Name: e.Name, UID: e.UID, Controller: &yes}}
		g.Add(g.t, p)
	}
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: export.Container, ContainerID: "containerd://" + id, State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)},
		}}
	})
	links := &exportapi.VirtualMachineExportLink{Cert: "PEM"}
	for _, v := range g.get(name).Status.IncludedVolumes {
		links.Backups = append(links.Backups, exportapi.VirtualMachineExportBackup{Name: v.VolumeName, Endpoints: []exportapi.VirtualMachineExportBackupEndpoint{
			{Endpoint: exportapi.Data, Url: "https://x/" + v.VolumeName + "/data"}, {Endpoint: exportapi.Map, Url: "https://x/" + v.VolumeName + "/map"},
		}})
	}
	fakecluster.Change(g.t, g.Cluster, e, func(e *exportapi.VirtualMachineExport) {
		e.Status = &exportapi.VirtualMachineExportStatus{Phase: exportapi.Ready, Links: &exportapi.VirtualMachineExportLinks{Internal: links}}
	})
}

// offers takes a backup in mode Pull to where clients can read it.
func (g *rig) offers(name string) {
	g.t.Helper()
	g.mounts(name)
	g.reconcile(name)
	g.serves(name, strings.Repeat("b", 64))
	g.reconcile(name)
	assert.Equal(g.t, g.condition(name, api.ConditionProgressing), "True ExportReady: Backup export is ready to pull")
}

// TestPull: clients read a backup from its export's pod once the node serves that. The backup is complete
// when it is deleted.
func TestPull(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.tracker("nightly")
	g.backup("monday", pullMode)
	g.mounts("monday")
	assert.Equal(t, g.reconcile("monday").RequeueAfter, poll)
	assert.Assert(t, g.node.ordered.Pull)
	assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True PreparingExport: Backup export is being initialized")
	assert.Equal(t, g.condition("monday", api.ConditionQuiesced), "True QuiesceSucceeded: Guest filesystem was successfully quiesced")
	b, e := g.get("monday"), g.exported("monday")
	assert.Assert(t, metav1.IsControlledBy(e, b) && *e.Spec.TokenSecretRef == "token" && e.Spec.Source.Kind == kindBackup)
	assert.Equal(t, e.Spec.TTLDuration.Duration, 30*time.Minute)
	assert.Assert(t, b.Status.EndpointCert == nil && b.Status.ExportUID == nil && b.Status.Type == api.Full)
	s := g.vmi().Status.ChangedBlockTracking.BackupStatus
	assert.Assert(t, s.BackupName == "monday" && !s.Completed && s.QuiesceStatus == "Succeeded" && len(s.Volumes) == 2)
	assert.Assert(t, s.StartTimestamp.Time.Equal(created) && *s.CheckpointName == "monday-2026-11-25_12-00-00")

	first, second := strings.Repeat("b", 64), strings.Repeat("c", 64)
	g.serves("monday", first)
	assert.Equal(t, g.reconcile("monday").RequeueAfter, retry)
	b = g.get("monday")
	assert.Equal(t, g.node.backups[string(b.UID)].Readers, first)
	assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True ExportReady: Backup export is ready to pull")
	assert.DeepEqual(t, b.Status.IncludedVolumes, []api.BackupVolumeInfo{
		{VolumeName: "root", DiskTarget: "vdr", DataEndpoint: "https://x/root/data", MapEndpoint: "https://x/root/map"},
		{VolumeName: "data", DiskTarget: "vdd", DataEndpoint: "https://x/data/data", MapEndpoint: "https://x/data/map"},
	})
	assert.Assert(t, *b.Status.EndpointCert == "PEM" && *b.Status.ExportUID == e.UID)
	g.Writes()
	g.reconcile("monday")
	assert.Equal(t, g.Writes(), "")
	assert.Equal(t, g.latest("nightly"), "")

	// The pod is replaced.
	fakecluster.Change(t, g.Cluster, g.exported("monday"), func(e *exportapi.VirtualMachineExport) {
		e.Status.Phase, e.Status.Links = exportapi.Pending, nil
	})
	g.reconcile("monday")
	b = g.get("monday")
	assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True PreparingExport: Backup export is being initialized")
	assert.Assert(t, b.Status.EndpointCert == nil && b.Status.IncludedVolumes[0].DataEndpoint == "")
	g.serves("monday", second)
	g.reconcile("monday")
	assert.Equal(t, g.node.backups[string(b.UID)].Readers, second)
	assert.Assert(t, g.get("monday").Status.EndpointCert != nil)

	assert.NilError(t, g.Delete(t.Context(), g.get("monday")))
	assert.Equal(t, g.reconcile("monday").RequeueAfter, poll)
	assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True Aborting: Backup is aborting")
	assert.Assert(t, g.latest("nightly") == "" && len(g.node.finished) == 1 && len(g.node.cancelled) == 0)
	g.node.ends(order.BackupCompleted)
	g.reconcile("monday")
	assert.Equal(t, g.latest("nightly"), "monday-2026-11-25_12-00-00")
	assert.Assert(t, !g.Exists(t, &vmBackup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "monday"}}))
	assert.Assert(t, g.exported("monday") == nil && g.vmi().Status.ChangedBlockTracking.BackupStatus == nil)
	assert.Equal(t, g.vmi().Status.ChangedBlockTracking.State, kubevirt.ChangedBlockTrackingEnabled)
}

// TestPullExpires: the end of a backup's time completes what clients could read, and nothing else.
func TestPullExpires(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.tracker("nightly")
	g.backup("read", pullMode)
	g.offers("read")
	g.now = created.Add(30 * time.Minute)
	g.reconcile("read")
	assert.Equal(t, g.condition("read", api.ConditionProgressing), "True Aborting: pull mode backup TTL has expired: Backup is aborting")
	g.node.ends(order.BackupCompleted)
	g.reconcile("read")
	assert.Equal(t, g.condition("read", api.ConditionComplete), "True Completed: Successfully completed VirtualMachineBackup")
	b := g.get("read")
	assert.Assert(t, b.Status.EndpointCert == nil && b.Status.IncludedVolumes[0] == api.BackupVolumeInfo{VolumeName: "root", DiskTarget: "vdr"})
	assert.Equal(t, g.latest("nightly"), "read-2026-11-25_12-00-00")
	assert.Assert(t, g.exported("read") == nil && g.vmi().Status.ChangedBlockTracking.BackupStatus == nil)

	const unread = "True Failed: Backup has failed: its ttlDuration was over before clients could read it"
	g.now = created
	assert.NilError(t, g.DeleteAllOf(t.Context(), new(corev1.Pod), client.InNamespace(namespace)))
	g.backup("unread", pullMode)
	g.mounts("unread")
	g.reconcile("unread")
	g.now = created.Add(time.Hour)
	g.reconcile("unread")
	assert.Equal(t, len(g.node.cancelled), 1)
	g.node.ends(order.BackupFailed)
	g.reconcile("unread")
	assert.Equal(t, g.condition("unread", api.ConditionFailed), unread)
	g.backup("late", pullMode)
	g.reconcile("late")
	assert.Equal(t, g.condition("late", api.ConditionFailed), unread)
	assert.Equal(t, g.latest("nightly"), "read-2026-11-25_12-00-00")
}

// TestPullFails: what the node says of a backup that failed, and the end of the VM, leave the tracker's
// checkpoint as it was, and no endpoint.
func TestPullFails(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.tracker("nightly")
	g.backup("full", pullMode)
	g.offers("full")
	g.node.ends(order.BackupFailed, func(b *order.Backup) { b.Message = "the volume is nearly full" })
	g.reconcile("full")
	assert.Equal(t, g.condition("full", api.ConditionFailed), "True Failed: Backup has failed: the volume is nearly full")
	assert.Assert(t, g.get("full").Status.EndpointCert == nil && g.exported("full") == nil)

	assert.NilError(t, g.DeleteAllOf(t.Context(), new(corev1.Pod), client.InNamespace(namespace)))
	g.backup("lost", pullMode)
	g.offers("lost")
	assert.NilError(t, g.Delete(t.Context(), g.vmi()))
	g.reconcile("lost")
	assert.Equal(t, g.condition("lost", api.ConditionFailed), "True SourceLost: Backup has failed: the VM ended before the backup did")
	assert.Assert(t, g.latest("nightly") == "" && g.get("lost").Status.EndpointCert == nil && g.exported("lost") == nil)
}

// TestOldNode: a shim that does not know mode Pull makes files, which are no backup that a client could read.
func TestOldNode(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.tracker("nightly")
	g.backup("monday", pullMode)
	g.node.old = true
	g.mounts("monday")
	g.reconcile("monday")
	g.node.ends(order.BackupCompleted)
	g.reconcile("monday")
	assert.Equal(t, g.condition("monday", api.ConditionFailed), "True Failed: Backup has failed: the VM's node does not support mode Pull; update its shim")
	assert.Equal(t, g.latest("nightly"), "")
}

// TestPullWaits: a backup says what its export waits for.
func TestPullWaits(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.tracker("nightly")
	other := &exportapi.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "monday"}}
	g.Add(t, other)
	g.backup("monday", pullMode)
	g.mounts("monday")
	waits := func(want string) {
		t.Helper()
		assert.Equal(t, g.reconcile("monday").RequeueAfter, poll)
		assert.Equal(t, g.condition("monday", api.ConditionProgressing), "True PreparingExport: "+want)
	}
	waits("VMExport monday already exists but is not owned by backup monday")
	assert.NilError(t, g.Delete(t.Context(), other))
	waits("Backup export is being initialized")
	fakecluster.Change(t, g.Cluster, g.exported("monday"), func(e *exportapi.VirtualMachineExport) {
		e.Status = &exportapi.VirtualMachineExportStatus{Conditions: []exportapi.Condition{
			{Type: exportapi.ConditionReady, Status: corev1.ConditionFalse, Message: "no such Secret"},
		}}
	})
	waits("export monday: no such Secret")
	g.node.fail = errors.New("no node")
	assert.Equal(t, g.reconcile("monday").RequeueAfter, retry)
	g.node.fail = nil
	waits("export monday: no such Secret")
}
