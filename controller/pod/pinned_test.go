package pod

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// TestPinImage: the target of a migration has the image that the source runs, though its tag has moved.
func TestPinImage(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("ab", 32)
	for name, tt := range map[string]struct{ image, disk, has, want string }{
		"a tag":                       {image: "example.com/fedora:41", has: "example.com/fedora" + digest, want: "example.com/fedora" + digest},
		"of the Docker Hub":           {image: "fedora:41", has: "docker.io/library/fedora" + digest, want: "docker.io/library/fedora" + digest},
		"an image without a registry": {image: "example.com/fedora:41", has: "sha256:" + strings.Repeat("ab", 32), want: "example.com/fedora:41"},
		"another repository":          {image: "example.com/fedora:41", has: "example.com/other" + digest, want: "example.com/fedora:41"},
		"no name":                     {image: "example.com/fedora:41", has: "-- rm", want: "example.com/fedora:41"},
		"a digest":                    {image: "example.com/fedora" + digest, has: "example.com/fedora@sha256:" + strings.Repeat("cd", 32), want: "example.com/fedora" + digest},
		"no image with a disk":        {image: "example.com/stub:1", disk: "example.com/fedora:41", has: "example.com/stub" + digest, want: "example.com/stub:1"},
	} {
		disk := tt.disk
		if disk == "" {
			disk = tt.image
		}
		s := &kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{{
			Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: disk}},
		}}}
		target := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "sidecar", Image: tt.image}, {Name: Container, Image: tt.image}}}}
		source := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "sidecar", ImageID: tt.has}, {Name: Container, ImageID: tt.has},
		}}}
		PinImage(target, source, s)
		assert.Equal(t, target.Spec.Containers[0].Image, tt.image, name)
		assert.Equal(t, target.Spec.Containers[1].Image, tt.want, name)
	}
}
