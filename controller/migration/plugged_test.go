package migration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

var holdingContainer = strings.Repeat("c", 64)

// hold does the kubelet's work for an attachment pod.
func (g *rig) hold(p *corev1.Pod, node string) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			ContainerID: "containerd://" + holdingContainer, State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)},
		}}
	})
}

// holder returns the attachment pod of a pod; nil for none.
func (g *rig) holder(own *corev1.Pod) *corev1.Pod { return g.pod(pod.AttachmentName(own, "data")) }

// plugged adds an instance that runs, and whose VM has got a volume.
func (g *rig) plugged() {
	g.t.Helper()
	g.running()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claim"}}
	pvc.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	g.Add(g.t, pvc)
	objects := pod.PVCObjects{"claim": pvc}
	fakecluster.Change(g.t, g.Cluster, g.vmi(), func(vmi *instance) {
		c := new(kubevirt.PersistentVolumeClaimVolumeSource)
		c.ClaimName, c.Hotpluggable = "claim", true
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "data", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: c}})
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks,
			kubevirt.Disk{Name: "data", DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusSCSI}}})
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, kubevirt.VolumeStatus{
			Name: "data", Phase: kubevirt.VolumeReady, Target: "sda",
			HotplugVolume:             &kubevirt.HotplugVolumeStatus{AttachPodName: pod.AttachmentName(g.source(), "data")},
			PersistentVolumeClaimInfo: objects.Info("claim"),
		})
	})
	a, err := pod.Attachment(g.vmi(), g.source(), "data", objects, pod.Holder{Image: "holder"})
	assert.NilError(g.t, err)
	g.Add(g.t, a)
	g.hold(a, "node1")
	g.reconcile()
	g.nodes.plugged = []order.Plugged{{Name: "data", Target: "sda", Disk: json.RawMessage(`{"name":"data"}`)}}
}

// scheduled lets the target's VM wait for its guest, on the other node.
func (g *rig) scheduled() {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.target(), func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(g.now) })
	g.boot(g.target(), "node2", "10.0.0.2")
}

// TestPluggedVolumes: the target's node mounts the volume that the VM has got before it is ordered to receive the guest.
func TestPluggedVolumes(t *testing.T) {
	g := newRig(t)
	g.plugged()
	g.migrate()
	g.reconcile()
	target := g.target()
	assert.Assert(t, !strings.Contains(target.Annotations[vmspec.AnnotationVMI], "data"), "the VM starts with it")
	assert.Assert(t, g.holder(target) == nil, "before there is a node")
	g.scheduled()
	for range 2 {
		g.reconcile()
		assert.Equal(t, g.migration().Status.Phase, kubevirt.MigrationScheduling)
		assert.Assert(t, g.holder(target) != nil)
		assert.Assert(t, !g.nodes.gave(order.Receive))
	}
	g.hold(g.holder(target), "node2")
	g.reconcile()
	assert.Equal(t, g.migration().Status.Phase, kubevirt.MigrationRunning)
	assert.DeepEqual(t, g.nodes.received.Volumes, map[string]string{"data": holdingContainer})
	g.nodes.take()
	g.settle()
	assert.Equal(t, g.migration().Status.Phase, kubevirt.MigrationSucceeded)
}

// TestPluggedVolumeOfNoNode: a migration whose target's node never mounts the volume fails, and says so.
func TestPluggedVolumeOfNoNode(t *testing.T) {
	g := newRig(t)
	g.plugged()
	g.migrate()
	g.reconcile()
	g.scheduled()
	g.reconcile()
	g.now = g.target().CreationTimestamp.Add(pendingFor + time.Second)
	m := g.settle()
	assert.Equal(t, m.Status.Phase, kubevirt.MigrationFailed)
	assert.Assert(t, strings.Contains(m.Status.MigrationState.FailureReason, "it waits for volume data: attachment pod "), m.Status.MigrationState.FailureReason)
	assert.Assert(t, !g.nodes.gave(order.Receive))
}

// TestPluggedVolumesOfStrangers: the controller passes on what it knows of, and no more than a VM can get.
func TestPluggedVolumesOfStrangers(t *testing.T) {
	for want, plugged := range map[string][]order.Plugged{
		"volume other: the VM has it, and the instance does not report it": {{Name: "other", Disk: json.RawMessage("{}")}},
		"names 65 disks that the guest has got, the limit is 64":           many(order.MaxPlugged + 1),
	} {
		g := newRig(t)
		g.plugged()
		g.nodes.plugged = plugged
		g.migrate()
		g.reconcile()
		g.scheduled()
		g.reconcile()
		g.hold(g.holder(g.target()), "node2")
		m := g.settle()
		assert.Assert(t, strings.Contains(m.Status.MigrationState.FailureReason, want), m.Status.MigrationState.FailureReason)
		assert.Assert(t, !g.nodes.gave(order.Receive))
	}
}

func many(n int) (all []order.Plugged) {
	for range n {
		all = append(all, order.Plugged{Name: "data", Disk: json.RawMessage("{}")})
	}
	return all
}

// TestInstanceOf: events of attachment pods are those of their instance.
func TestInstanceOf(t *testing.T) {
	g := newRig(t)
	g.plugged()
	for _, o := range []client.Object{g.holder(g.source()), g.source()} {
		assert.Equal(t, instanceOf(o), name)
	}
	assert.Equal(t, instanceOf(&corev1.Node{}), "")
}
