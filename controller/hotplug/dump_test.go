package hotplug

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const dumpName = "web-claim-20260102-030405.memory.dump"

// dumping returns a rig whose guest's memory is being dumped.
func dumping(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		source := new(kubevirt.MemoryDumpVolumeSource)
		source.ClaimName, source.Hotpluggable = "claim", true
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "claim", VolumeSource: kubevirt.VolumeSource{MemoryDump: source}})
	})
	g.reconcile()
	g.phase("claim", kubevirt.HotplugVolumeAttachedToNode, "SuccessfulCreate")
	assert.DeepEqual(t, *g.status("claim").MemoryDumpVolume, kubevirt.DomainMemoryDumpInfo{ClaimName: "claim"})
	g.run(g.attachment())
	assert.Equal(t, g.reconcile().RequeueAfter, dumpPause)
	g.phase("claim", kubevirt.MemoryDumpVolumeInProgress, "VolumeMountedToPod")
	return g
}

// TestMemoryDump: the status has the dump's file before the node is asked for it, and the result.
func TestMemoryDump(t *testing.T) {
	g := dumping(t)
	p := g.attachment()
	assert.Equal(t, p.Spec.Containers[0].VolumeMounts[0].MountPath[strings.LastIndex(p.Spec.Containers[0].VolumeMounts[0].MountPath, "/"):], "/claim")
	assert.Equal(t, g.orders[0], fmt.Sprintf(`memory-dump {"volume":"claim","container":%q,"file":%q}`, container, dumpName))
	s := g.status("claim")
	assert.Equal(t, s.MemoryDumpVolume.TargetFileName, dumpName)
	assert.Assert(t, s.MemoryDumpVolume.StartTimestamp.Time.Equal(g.r.Now()))
	assert.Equal(t, s.Target, "")

	g.dump.State, g.dump.End = order.DumpCompleted, g.r.Now().Add(time.Minute)
	assert.Equal(t, g.reconcile().RequeueAfter, time.Duration(0))
	g.phase("claim", kubevirt.MemoryDumpVolumeCompleted, "VolumeReady")
	assert.Assert(t, g.status("claim").MemoryDumpVolume.EndTimestamp.Time.Equal(g.dump.End))
	g.orders = nil
	g.reconcile()
	assert.Equal(t, len(g.orders), 0)

	g.unplug("claim")
	g.reconcile()
	assert.Assert(t, g.status("claim") == nil)
	assert.Equal(t, len(g.attachments()), 0)
}

// TestMemoryDumpFails: the status says why, and a node that is away is asked again for the same file.
func TestMemoryDumpFails(t *testing.T) {
	g := dumping(t)
	g.broken = true
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.phase("claim", kubevirt.MemoryDumpVolumeInProgress, "FailedMemoryDump")
	g.broken = false
	for _, answer := range []string{`{"volume": "other", "state": "completed"}`, `{"volume": "claim", "state": "lost"}`, `x`} {
		g.r.Nodes = nodeFunc(answer)
		g.reconcile()
		g.phase("claim", kubevirt.MemoryDumpVolumeInProgress, "FailedMemoryDump")
	}
	g.r.Nodes = g
	g.dump.State, g.dump.Message, g.dump.End = order.DumpFailed, "no space", g.r.Now()
	g.reconcile()
	g.phase("claim", kubevirt.MemoryDumpVolumeFailed, "FailedMemoryDump")
	assert.Equal(t, g.status("claim").Message, "Memory dump to pvc claim failed: no space")
	assert.Equal(t, g.status("claim").MemoryDumpVolume.TargetFileName, dumpName)
}

// TestRemovedMemoryDump: the volume stays mounted while QEMU writes to it.
func TestRemovedMemoryDump(t *testing.T) {
	g := dumping(t)
	g.unplug("claim")
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.phase("claim", kubevirt.HotplugVolumeDetaching, "DetachingVolume")
	assert.Equal(t, len(g.attachments()), 1)
	g.dump.State = order.DumpCompleted
	g.reconcile()
	assert.Equal(t, len(g.attachments()), 0)
	assert.Assert(t, g.status("claim") == nil)
}

// TestLostDumpAttachment: another attachment pod holds the volume while QEMU writes, and the
// dump goes on.
func TestLostDumpAttachment(t *testing.T) {
	g := dumping(t)
	fakecluster.Change(t, g.Cluster, g.attachment(), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	g.reconcile()
	g.phase("claim", kubevirt.MemoryDumpVolumeInProgress, "VolumeMountedToPod")
	g.run(g.attachment())
	g.dump.State = order.DumpCompleted
	g.reconcile()
	g.phase("claim", kubevirt.MemoryDumpVolumeCompleted, "VolumeReady")
	assert.Equal(t, g.dump.File, dumpName)
}

// TestMemoryDumpToBlock: memory is dumped to file systems only.
func TestMemoryDumpToBlock(t *testing.T) {
	g := newRig(t)
	mode := corev1.PersistentVolumeBlock
	block := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "block"}}
	block.Spec.VolumeMode = &mode
	g.Add(t, block)
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		source := new(kubevirt.MemoryDumpVolumeSource)
		source.ClaimName = "block"
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "block", VolumeSource: kubevirt.VolumeSource{MemoryDump: source}})
	})
	g.reconcile()
	g.phase("block", kubevirt.VolumePending, "FailedCreate")
	assert.Assert(t, strings.Contains(g.status("block").Message, "memory dumps need Filesystem"))
	assert.Equal(t, len(g.attachments()), 0)
}
