//go:build machine

package machine

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/loopdev"
	"github.com/nodevirt/nodevirt/test/loopfs"
)

const blockVolume = `apiVersion: v1
kind: PersistentVolume
metadata: {name: block}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  volumeMode: Block
  storageClassName: ""
  local: {path: %s}
  claimRef: {namespace: default, name: block}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: block}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
  volumeMode: Block
  storageClassName: ""
  volumeName: block
`

// onDevice returns what gives a pod its disk on a block device of the machine's kernel.
func onDevice(t *testing.T) func(*corev1.Pod) {
	t.Helper()
	device := loopfs.Device(t, 1<<30)
	// The kubelet attaches loop devices to it, which outlive a machine of namespaces that reboots.
	t.Cleanup(func() {
		all, err := loopdev.All()
		if err != nil {
			t.Error(err)
		}
		own := slices.IndexFunc(all, func(d loopdev.Device) bool { return d.Path == device })
		for _, d := range all {
			if own < 0 || d.Behind != all[own].Number {
				continue
			}
			if err := d.Detach(); err != nil {
				t.Error(err)
			}
		}
	})
	if err := suite.Apply(t.Context(), fmt.Sprintf(blockVolume, device, name)); err != nil {
		t.Fatal(err)
	}
	return func(p *corev1.Pod) {
		p.Annotations[vmspec.AnnotationDiskOrigin] = "root=disk"
		p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "root", DevicePath: "/dev/root"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "block"},
		}}}
	}
}
