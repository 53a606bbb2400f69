package vm

import (
	"errors"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// requestDump does what the subresources do.
func (g *rig) requestDump(r *kubevirt.VirtualMachineMemoryDumpRequest) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Status.MemoryDumpRequest = r })
}

// dumpIs checks the phase of the request, and which specs have the volume.
func (g *rig) dumpIs(phase kubevirt.MemoryDumpPhase, template, instance bool) {
	g.t.Helper()
	for range 3 { // each phase is written by itself
		g.reconcile()
	}
	vm, vmi := g.vm(), g.vmi()
	now := kubevirt.MemoryDumpPhase("")
	if r := vm.Status.MemoryDumpRequest; r != nil {
		now = r.Phase
	}
	assert.Equal(g.t, now, phase)
	assert.Equal(g.t, pod.VolumeOf(&vm.Spec.Template.Spec, "claim") != nil, template, "the template's volume")
	assert.Equal(g.t, vmi != nil && pod.VolumeOf(&vmi.Spec, "claim") != nil, instance, "the instance's volume")
}

// dumped reports the volume of a dump, as the instance's controller does; an empty phase for none.
func (g *rig) dumped(phase kubevirt.VolumePhase) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "root"}}
		if phase != "" {
			vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, kubevirt.VolumeStatus{
				Name: "claim", Phase: phase, Message: "why", HotplugVolume: &kubevirt.HotplugVolumeStatus{},
				MemoryDumpVolume: &kubevirt.DomainMemoryDumpInfo{
					ClaimName: "claim", TargetFileName: "f.memory.dump", StartTimestamp: new(metav1.NewTime(g.now)), EndTimestamp: new(metav1.NewTime(g.now)),
				},
			})
		}
	})
}

func (g *rig) annotation() string {
	g.t.Helper()
	pvc := new(corev1.PersistentVolumeClaim)
	assert.NilError(g.t, g.Get(g.t.Context(), client.ObjectKey{Namespace: web.Namespace, Name: "claim"}, pvc))
	return pvc.Annotations["kubevirt.io/memory-dump"]
}

// dumpRig is a rig with a VM that runs.
func dumpRig(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "claim"}})
	g.add(kubevirt.RunStrategyManual, root)
	g.request(kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StartRequest})
	g.reconcile()
	g.phase(kubevirt.Running, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "root"}}
	})
	g.reconcile()
	return g
}

func associating() *kubevirt.VirtualMachineMemoryDumpRequest {
	return &kubevirt.VirtualMachineMemoryDumpRequest{ClaimName: "claim", Phase: kubevirt.MemoryDumpAssociating}
}

// TestMemoryDump: a request passes through KubeVirt's phases, and the template keeps the volume
// until the user removes the association.
func TestMemoryDump(t *testing.T) {
	g := dumpRig(t)
	for range 2 { // a second dump to the same PVC
		g.requestDump(associating())
		g.dumpIs(kubevirt.MemoryDumpInProgress, true, true)
		assert.Assert(t, !g.restartRequired())
		g.dumped(kubevirt.MemoryDumpVolumeInProgress)
		g.dumpIs(kubevirt.MemoryDumpInProgress, true, true)
		g.dumped(kubevirt.MemoryDumpVolumeCompleted)
		g.dumpIs(kubevirt.MemoryDumpUnmounting, true, false)
		assert.Equal(t, g.annotation(), "f.memory.dump")
		g.dumped("")
		g.dumpIs(kubevirt.MemoryDumpCompleted, true, false)
		r := g.vm().Status.MemoryDumpRequest
		assert.Equal(t, *r.FileName, "f.memory.dump")
		assert.Assert(t, r.StartTimestamp != nil && r.EndTimestamp != nil)
	}

	// No instance starts with the volume.
	g.request(kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StopRequest, UID: new(g.vmi().UID)})
	g.reconcile()
	g.ended()
	g.dumpIs(kubevirt.MemoryDumpCompleted, true, false)
	g.request(kubevirt.VirtualMachineStateChangeRequest{Action: kubevirt.StartRequest})
	g.dumpIs(kubevirt.MemoryDumpCompleted, true, false)
	assert.Assert(t, g.vmi() != nil)

	g.requestDump(&kubevirt.VirtualMachineMemoryDumpRequest{ClaimName: "claim", Phase: kubevirt.MemoryDumpDissociating, Remove: true})
	g.dumpIs("", false, false)
	assert.Assert(t, !g.restartRequired())
}

// TestMemoryDumpFails: the request says why, the PVC that there is no dump, and another request
// waits until the VM has lost the volume.
func TestMemoryDumpFails(t *testing.T) {
	g := dumpRig(t)
	g.requestDump(associating())
	g.dumpIs(kubevirt.MemoryDumpInProgress, true, true)
	g.dumped(kubevirt.MemoryDumpVolumeFailed)
	g.dumpIs(kubevirt.MemoryDumpFailed, true, false)
	assert.Equal(t, g.vm().Status.MemoryDumpRequest.Message, "why")
	assert.Equal(t, g.annotation(), "Memory dump failed")
	g.requestDump(associating())
	g.dumpIs(kubevirt.MemoryDumpAssociating, true, false)
	g.dumped("")
	g.dumpIs(kubevirt.MemoryDumpInProgress, true, true)

	// The end of the VM is the end of its dump.
	g.phase(kubevirt.Succeeded)
	g.dumpIs(kubevirt.MemoryDumpFailed, true, false)
	assert.Equal(t, g.vm().Status.MemoryDumpRequest.Message, "the VM stopped, or lost the volume, before its memory was dumped")
}

// TestStuckMemoryDump: a user removes the association while the PVC can't be mounted.
func TestStuckMemoryDump(t *testing.T) {
	g := dumpRig(t)
	g.requestDump(associating())
	g.dumpIs(kubevirt.MemoryDumpInProgress, true, true)
	g.dumped(kubevirt.VolumePending)
	g.requestDump(&kubevirt.VirtualMachineMemoryDumpRequest{ClaimName: "claim", Phase: kubevirt.MemoryDumpDissociating, Remove: true})
	g.dumpIs(kubevirt.MemoryDumpDissociating, false, false)
	g.dumped("")
	g.dumpIs("", false, false)
}

// TestMemoryDumpNames: a volume of the PVC's name that is a disk stays, and the VM says so.
func TestMemoryDumpNames(t *testing.T) {
	g := dumpRig(t)
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { plug(s, "claim", "other") })
	g.requestDump(associating())
	if _, err := g.try(); err == nil || !errors.As(err, new(dumpError)) {
		t.Errorf("error %v", err)
	}
	found := false
	for _, c := range g.vm().Status.Conditions {
		found = found || c.Type == kubevirt.VirtualMachineFailure && c.Reason == "MemoryDumpError"
	}
	assert.Assert(t, found, g.vm().Status.Conditions)
}
