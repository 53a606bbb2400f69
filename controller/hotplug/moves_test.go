package hotplug

import (
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// migrating returns a rig whose VM has got a volume, and moves; and what moves the volume.
func migrating(t *testing.T) (*rig, *Moves, *corev1.Pod) {
	t.Helper()
	g := attached(t)
	target := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "virt-launcher-web-fghij"},
		Spec:       corev1.PodSpec{NodeName: "node2"},
	}
	g.Add(t, target)
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.MigrationState = &kubevirt.VirtualMachineInstanceMigrationState{MigrationUID: "m", SourcePod: g.own.Name, TargetPod: target.Name}
	})
	g.guest.Running = false
	return g, &Moves{Client: g.Cached(), Events: g.Recorder, Holder: g.r.Holder}, target
}

// of returns the attachment pods of a pod.
func (g *rig) of(own *corev1.Pod) []corev1.Pod {
	g.t.Helper()
	all, err := Attachments(g.t.Context(), g.Client, own)
	assert.NilError(g.t, err)
	return all
}

// attach has the target's node mount the volumes.
func (g *rig) attach(m *Moves, target *corev1.Pod, named ...string) (containers map[string]string, waits string) {
	g.t.Helper()
	containers, waits, err := m.Attach(g.t.Context(), g.vmi(), g.own, target, named...)
	assert.NilError(g.t, err)
	return containers, waits
}

// TestMoves: the target of a migration has an attachment pod on its node. With the guest, the instance has that of
// the target, and the source's is deleted once the source's VM has ended.
func TestMoves(t *testing.T) {
	g, m, target := migrating(t)
	source := g.attachment()
	_, waits := g.attach(m, target)
	name := pod.AttachmentName(target, "data")
	assert.Equal(t, waits, "volume data: attachment pod "+name+" is pending")
	assert.Equal(t, len(g.of(target)), 1)
	p := g.of(target)[0]
	assert.Equal(t, p.Name, name)
	assert.Equal(t, p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0], "node2")
	assert.Equal(t, pod.Held(&p).PVC, "claim")
	assert.Equal(t, p.OwnerReferences[0].UID, target.UID)
	_, waits = g.attach(m, target)
	assert.Equal(t, waits, "volume data: attachment pod "+name+" is pending")
	g.run(&p)
	containers, waits := g.attach(m, target)
	assert.Equal(t, waits, "")
	assert.DeepEqual(t, containers, map[string]string{"data": container})
	_, waits = g.attach(m, target, "data", "other")
	assert.Equal(t, waits, "volume other: the VM has it, and the instance does not report it")

	g.reconcile() // the guest is on its way
	assert.Equal(t, len(g.attachments()), 2)
	assert.Equal(t, g.status("data").HotplugVolume.AttachPodName, source.Name)
	assert.Equal(t, len(g.orders), 0)

	g.change(func(vmi *kubevirt.VirtualMachineInstance) { vmi.Status.MigrationState.Completed = true })
	former := g.own
	g.own, g.guest = target, Guest{Pod: target, Running: true}
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
	assert.DeepEqual(t, *g.status("data").HotplugVolume, kubevirt.HotplugVolumeStatus{AttachPodName: name, AttachPodUID: p.UID})
	assert.Equal(t, len(g.of(former)), 1, "while the source's VM may have the volume open")
	fakecluster.Change(t, g.Cluster, former, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	g.reconcile()
	assert.Equal(t, len(g.of(former)), 0)
	assert.Equal(t, len(g.of(target)), 1)
	assert.Equal(t, len(g.orders), 0)

	g.unplug("data")
	g.reconcile()
	assert.Equal(t, len(g.attachments()), 0)
	assert.Assert(t, g.status("data") == nil)
}

// TestImagesMove: the target's node has the image of a registry disk, too.
func TestImagesMove(t *testing.T) {
	g, m, target := migrating(t)
	g.guest.Running = true
	g.plugImage("tools", "registry.example.com/tools:1")
	g.reconcile()
	g.run(&g.of(g.own)[1])
	g.reconcile()
	g.phase("tools", kubevirt.VolumeReady, "VolumeReady")
	g.guest.Running = false
	_, waits := g.attach(m, target)
	assert.Equal(t, waits, "volume tools: attachment pod "+pod.AttachmentName(target, "tools")+" is pending")
	var held []string
	for _, p := range g.of(target) {
		held = append(held, pod.Held(&p).PVC+pod.Held(&p).Image())
		g.run(&p)
	}
	assert.DeepEqual(t, held, []string{"claim", "registry.example.com/tools:1"})
	containers, waits := g.attach(m, target)
	assert.Equal(t, waits, "")
	assert.DeepEqual(t, containers, map[string]string{"data": container, "tools": container})
}

// TestMoveFails: the target's attachment pod ends with the target.
func TestMoveFails(t *testing.T) {
	g, m, target := migrating(t)
	g.attach(m, target)
	g.reconcile()
	assert.Equal(t, len(g.attachments()), 2)
	fakecluster.Change(t, g.Cluster, target, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	g.guest.Running = true
	g.reconcile()
	assert.Equal(t, len(g.of(target)), 0)
	assert.Equal(t, len(g.of(g.own)), 1)
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
}

// TestWhatMoves: only disks that the VM has got move, and a PVC that is gone says so.
func TestWhatMoves(t *testing.T) {
	g, m, target := migrating(t)
	set := func(change func(*kubevirt.VolumeStatus)) {
		g.change(func(vmi *kubevirt.VirtualMachineInstance) { change(&vmi.Status.VolumeStatus[1]) })
	}
	set(func(s *kubevirt.VolumeStatus) { s.Phase = kubevirt.HotplugVolumeMounted })
	_, waits := g.attach(m, target)
	assert.Equal(t, waits, "")
	_, waits = g.attach(m, target, "data") // the node attached it meanwhile
	assert.Assert(t, waits != "")
	assert.Equal(t, len(g.of(target)), 1)
	p := g.of(target)[0]
	fakecluster.Change(t, g.Cluster, &p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	_, waits = g.attach(m, target, "data")
	assert.Equal(t, waits, "volume data: attachment pod "+p.Name+" has ended")
	set(func(s *kubevirt.VolumeStatus) {
		s.Phase, s.MemoryDumpVolume = kubevirt.MemoryDumpVolumeCompleted, new(kubevirt.DomainMemoryDumpInfo)
	})
	_, waits = g.attach(m, target)
	assert.Equal(t, waits, "")
	set(func(s *kubevirt.VolumeStatus) { s.Phase, s.MemoryDumpVolume = kubevirt.VolumeReady, nil })
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "claim"}}
	assert.NilError(t, client.IgnoreNotFound(g.Delete(t.Context(), &p)))
	assert.NilError(t, g.Delete(t.Context(), pvc))
	_, waits = g.attach(m, target)
	assert.Equal(t, waits, "volume data: PVC claim does not exist")
}

// TestVolumeMigration: the guest's disk is on another PVC after its move, and stays there until the instance names it.
func TestVolumeMigration(t *testing.T) {
	g, _, target := migrating(t)
	g.Add(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "new"},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	})
	fakecluster.Change(t, g.Cluster, target, func(p *corev1.Pod) {
		p.Annotations = map[string]string{vmspec.AnnotationCopiedVolumes: "data=new"}
	})
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.MigratedVolumes = []kubevirt.StorageMigratedVolumeInfo{{
			VolumeName: "data", DestinationPVCInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: "new"}}}
	})
	m := &Moves{Client: g.Cached(), Events: g.Recorder, Holder: g.r.Holder}
	g.attach(m, target)
	p := g.of(target)[0]
	assert.Equal(t, pod.Held(&p).PVC, "new")
	g.run(&p)
	g.own, g.guest = target, Guest{Pod: target, Running: true}
	g.reconcile()
	assert.Equal(t, g.status("data").PersistentVolumeClaimInfo.ClaimName, "claim")
	assert.Assert(t, p.DeletionTimestamp == nil && len(g.orders) == 0)

	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec = pod.AtDestinations(vmi).Spec
		vmi.Status.MigratedVolumes = nil
	})
	g.reconcile()
	assert.Equal(t, g.status("data").PersistentVolumeClaimInfo.ClaimName, "new")
	assert.DeepEqual(t, g.status("data").PersistentVolumeClaimInfo.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce})
	assert.Equal(t, g.status("data").HotplugVolume.AttachPodName, p.Name)
	assert.Equal(t, len(g.of(target)), 1)
	assert.Equal(t, len(g.orders), 0)
}
