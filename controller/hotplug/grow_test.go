package hotplug

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// expand changes the capacity of the PVC.
func (g *rig) expand(to string) {
	g.t.Helper()
	pvc := new(corev1.PersistentVolumeClaim)
	assert.NilError(g.t, g.Get(g.t.Context(), client.ObjectKey{Namespace: web.Namespace, Name: "claim"}, pvc))
	fakecluster.Change(g.t, g.Cluster, pvc, func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(to)}
	})
}

// capacity checks the capacity that the instance reports of a volume.
func (g *rig) capacity(volume, want string) {
	g.t.Helper()
	now := g.status(volume).PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]
	assert.Equal(g.t, now.String(), want)
}

// TestGrow: the disks of an expanded PVC grow once, those that the VM started with and those
// that it got.
func TestGrow(t *testing.T) {
	g := newRig(t)
	g.expand("1Gi")
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo = &kubevirt.PersistentVolumeClaimInfo{
			ClaimName: "claim", Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		}
	})
	g.plug("data", "claim")
	g.reconcile()
	g.run(g.attachment())
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
	g.orders = nil

	g.expand("2Gi")
	g.broken = true
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.capacity("root", "1Gi")
	if events := fmt.Sprint(g.Events()); !strings.Contains(events, "Warning FailedExpandVolume Volume root: disk-grow") {
		t.Error(events)
	}
	g.broken = false
	for range 2 {
		assert.Equal(t, int(g.reconcile().RequeueAfter), 0)
	}
	assert.DeepEqual(t, g.orders, []string{`disk-grow {"name":"root","size":2147483648}`, `disk-grow {"name":"data","size":2147483648}`})
	g.capacity("root", "2Gi")
	g.capacity("data", "2Gi")

	// A PVC that is not bound, or gone, has no capacity.
	g.expand("0")
	g.reconcile()
	assert.Equal(t, len(g.orders), 2)
}
