package export

import (
	"encoding/json"
	"path"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	backupapi "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestBackup: the export of a backup in progress has a pod on the VM's node, with a folder for the
// node's socket and no PVC, and links to the endpoints of each volume. It ends with the backup.
func TestBackup(t *testing.T) {
	g := newRig(t)
	b := &backupapi.VirtualMachineBackup{ObjectMeta: meta("monday")}
	b.Spec.Source = corev1.TypedLocalObjectReference{Kind: kindVM, Name: "web"}
	g.export(kindBackup, "monday")
	g.expect(api.Pending, "VirtualMachineBackup default/monday not found")
	g.Add(t, b)
	g.expect(api.Pending, "VirtualMachineBackup default/monday creates its export itself, in mode Pull")
	yes := true
	fakecluster.Change(t, g.Cluster, g.e, func(e *vmExport) {
		e.OwnerReferences = []metav1.OwnerReference{{APIVersion: "backup.kubevirt.io/v1alpha1", Kind: kindBackup, Name: b.Name, UID: b.UID, Controller: &yes}}
	})
	g.expect(api.Pending, "VirtualMachineBackup default/monday is not in progress")
	progress := func(status metav1.ConditionStatus) {
		t.Helper()
		fakecluster.Change(t, g.Cluster, b, func(b *backupapi.VirtualMachineBackup) {
			b.Status = &backupapi.VirtualMachineBackupStatus{
				Type:            backupapi.Incremental,
				IncludedVolumes: []backupapi.BackupVolumeInfo{{VolumeName: "root"}, {VolumeName: "data"}},
				Conditions:      []metav1.Condition{{Type: string(backupapi.ConditionProgressing), Status: status, Reason: "R"}},
			}
		})
	}
	progress(metav1.ConditionTrue)
	g.expect(api.Pending, "the VM of VirtualMachineBackup default/monday does not run")
	g.Add(t, &kubevirt.VirtualMachineInstance{ObjectMeta: meta("web")})
	g.expect(api.Pending, "False PodPending")

	p := g.server()
	assert.Equal(t, p.Annotations[order.Annotation], "uid-guest")
	assert.Equal(t, p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0], "node-1")
	var served server.Config
	assert.NilError(t, json.Unmarshal([]byte(p.Annotations[annotationConfig]), &served))
	assert.DeepEqual(t, *served.Backup, server.Backup{
		Socket: "/run/nodevirt-export/backup-socket/nbd.sock", Changes: order.ChangesContext, Volumes: []string{"root", "data"},
	})
	found := false
	for _, v := range p.Spec.Volumes {
		assert.Assert(t, v.PersistentVolumeClaim == nil)
		found = found || v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.Name == order.SocketVolume
	}
	for _, m := range p.Spec.Containers[0].VolumeMounts {
		assert.Assert(t, m.ReadOnly)
		found = found && (m.Name != order.SocketVolume || path.Base(m.MountPath) == order.SocketVolume)
	}
	assert.Assert(t, found && p.Spec.Containers[0].Name == Container && p.Name == PodName(g.e))

	g.serves()
	const base = "https://virt-export-out.default.svc/exports/"
	assert.Equal(t, g.urls(), "root data "+base+"root/data\nroot map "+base+"root/map\ndata data "+base+"data/data\ndata map "+base+"data/map\n"+
		"auth-header-secret https://virt-export-out.default.svc/internal/manifests/secret")
	progress(metav1.ConditionFalse)
	g.expect(api.Pending, "is not in progress")
	assert.Assert(t, g.server() == nil && g.e.Status.Links == nil)
}
