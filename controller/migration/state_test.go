package migration

import (
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// persistent gives an instance a persistent TPM.
func persistent(vmi *instance) {
	vmi.Spec.Domain.Devices.TPM = &kubevirt.TPMDevice{Persistent: new(true)}
}

// keeps checks that a PVC, and no other, has the instance's persistent state.
func (g *rig) keeps(pvc string) {
	g.t.Helper()
	var all corev1.PersistentVolumeClaimList
	assert.NilError(g.t, g.List(g.t.Context(), &all))
	assert.Equal(g.t, len(all.Items), 1)
	assert.Equal(g.t, all.Items[0].Name, pvc)
	assert.Equal(g.t, all.Items[0].Labels[pod.StateLabel], name)
	assert.Assert(g.t, all.Items[0].DeletionTimestamp == nil)
}

// TestStateMoves: persistent state on a PVC of one node moves to another PVC with its guest.
func TestStateMoves(t *testing.T) {
	g := newRig(t)
	g.running(persistent)
	from := pod.StateOf(g.source())
	g.to(kubevirt.MigrationRunning)
	to := pod.StateOf(g.target())
	assert.Equal(t, to, pod.MovedStateName(name, g.migration().UID))
	made := new(corev1.PersistentVolumeClaim)
	assert.NilError(t, g.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: to}, made))
	assert.Equal(t, made.Labels[pod.StateLabel], "") // an instance that starts now has the former one
	assert.DeepEqual(t, made.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce})
	assert.Equal(t, made.Spec.Resources.Requests.Storage().String(), "10Mi")
	g.nodes.take()
	s := g.settle().Status
	assert.Equal(t, s.Phase, kubevirt.MigrationSucceeded)
	assert.Equal(t, s.MigrationState.SourcePersistentStatePVCName, from)
	assert.Equal(t, s.MigrationState.TargetPersistentStatePVCName, to)
	g.keeps(to)
}

// TestSharedStateStays: both nodes mount a PVC.
func TestSharedStateStays(t *testing.T) {
	g := newRig(t)
	g.running(persistent)
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name = namespace, pod.StateOf(g.source())
	fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	g.to(kubevirt.MigrationRunning)
	assert.Equal(t, pod.StateOf(g.target()), pvc.Name)
	g.nodes.take()
	assert.Equal(t, g.settle().Status.Phase, kubevirt.MigrationSucceeded)
	g.keeps(pvc.Name)
}

// TestStateOfAnInstanceThatEnds: the state is where the guest was last.
func TestStateOfAnInstanceThatEnds(t *testing.T) {
	for name, moved := range map[string]bool{"on the source": false, "on the target": true} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.running(persistent)
			state := pod.StateOf(g.source())
			g.to(kubevirt.MigrationRunning)
			source, target := g.source(), g.target()
			fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *instance) { vmi.Finalizers = append(vmi.Finalizers, "example.com/stay") })
			assert.NilError(t, g.Delete(t.Context(), g.vmi()))
			g.reconcile()
			g.reconcile()
			assert.Equal(t, g.migration().Status.Phase, kubevirt.MigrationRunning)
			assert.Assert(t, g.pod(source.Name).DeletionTimestamp != nil && g.pod(target.Name).DeletionTimestamp != nil)
			if moved {
				state = pod.StateOf(target)
				g.end(source, 0, "Migrated")
				g.end(target, 0, "Completed")
			} else {
				g.end(source, 0, "Completed")
				g.end(target, 1, "MigrationRefused")
			}
			assert.Equal(t, g.settle().Status.Phase, kubevirt.MigrationFailed)
			g.keeps(state)
		})
	}
}
