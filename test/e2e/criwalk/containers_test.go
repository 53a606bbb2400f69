package criwalk

import (
	"testing"

	"gotest.tools/v3/golden"
)

// TestContainers walks with a VM and a sidecar of the same pod.
func TestContainers(t *testing.T) {
	t.Parallel()
	p := newPod(t, "containers", "vm").run()
	w := newWalk(t, containerCases(), newSubject(p, "compute", suite.machine), newSubject(p, "sidecar", suite.process))
	w.machine.id, w.process.id = "no-such-container", "no-such-container"
	w.look(unknown)
	w.both((*subject).create)
	w.look(created)
	w.both((*subject).start)
	w.look(running)
	w.both((*subject).stop)
	w.look(exited)
	w.both((*subject).removeIt)
	w.look(removed)
	golden.Assert(t, w.said.String(), "containers.golden")
}

// TestSandboxes walks with the pod of a VM and that of an ordinary container.
func TestSandboxes(t *testing.T) {
	t.Parallel()
	w := newWalk(t, sandboxCases(),
		newSubject(newPod(t, "vms", "vm"), "compute", suite.machine), newSubject(newPod(t, "ordinary", ""), "compute", suite.process))
	w.machine.of, w.process.of = ofSandbox, ofSandbox
	w.machine.pod.id, w.process.pod.id = "no-such-pod", "no-such-pod"
	w.look(unknown)
	w.machine.run()
	w.process.run()
	w.both((*subject).create)
	w.both((*subject).start)
	w.look(ready)
	w.both((*subject).stopPod)
	w.look(notReady)
	w.both((*subject).removePod)
	w.look(removed)
	golden.Assert(t, w.said.String(), "sandboxes.golden")
}

// TestImages walks with the images of a VM and of a sidecar that run, and takes them away.
func TestImages(t *testing.T) {
	t.Parallel()
	p := newPod(t, "images", "vm").run()
	w := newWalk(t, imageCases(),
		newSubject(p, "compute", pushDisk(t, "removed-machine:1", "removed")),
		newSubject(p, "sidecar", pushProcess(t, "removed-process:1", "removed")))
	w.both((*subject).create)
	w.both((*subject).start)
	w.machine.of, w.process.of = ofImage, ofImage
	w.look(running)
	w.both((*subject).removeImage)
	w.look(removed)
	// What a kubelet learns of containers whose image is gone.
	w.cases, w.machine.of, w.process.of = containerCases(), ofContainer, ofContainer
	w.look(running)
	golden.Assert(t, w.said.String(), "images.golden")
}
