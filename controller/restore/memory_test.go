package restore

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/snapshot"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestMemory: the next start of a VM goes on from the memory in the snapshot, and boots if the
// snapshot has none, whatever was restored before.
func TestMemory(t *testing.T) {
	for _, target := range []string{"web", "copy"} {
		for _, memory := range []string{"memory", ""} {
			g := newRig(t)
			now := g.vm()
			fakecluster.Change(t, g.Cluster, now, func(vm *kubevirt.VirtualMachine) { vm.Annotations = map[string]string{pod.AnnotationResume: "earlier"} })
			content := &api.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "content"}}
			fakecluster.Change(t, g.Cluster, content, func(c *api.VirtualMachineSnapshotContent) {
				c.Annotations = map[string]string{snapshot.AnnotationMemoryPVC: memory}
			})
			g.finish(g.restore(target))
			made := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: target}}
			if !g.Exists(t, made) || made.Annotations[pod.AnnotationResume] != memory {
				t.Errorf("%s of a snapshot with PVC %q: annotations %v", target, memory, made.Annotations)
			}
		}
	}
}
