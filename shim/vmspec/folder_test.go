package vmspec

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestFolder(t *testing.T) {
	c := attachment()
	c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/image", Image: &runtimeapi.ImageSpec{Image: "sha256:a"}},
		&runtimeapi.Mount{ContainerPath: "/volumes/secret", HostPath: "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s"})
	path, err := Folder("files", c)
	assert.NilError(t, err)
	assert.Equal(t, path, "/pods/a/files")
	for name, want := range map[string]string{
		"fixed": "is read-only", "raw": "is a block device", "image": "is no PVC", "secret": "is no PVC",
		"other": "mount it at a path that ends in /other",
	} {
		if path, err := Folder(name, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want %q", name, path, err, want)
		}
	}
}
