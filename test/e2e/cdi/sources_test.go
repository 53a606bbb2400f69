//go:build cdi

package cdi

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestDataVolumesAreFilled: CDI fills PVCs of the cluster's storage from each kind of source, in pods that the
// shim runs. Those that hold the guest's disk have equal content.
func TestDataVolumesAreFilled(t *testing.T) {
	t.Parallel()
	const imported, copied, uploaded, pulled, blank = "imported", "copied", "uploaded", "pulled", "blank"
	volumes := []string{imported, copied, uploaded, pulled, blank}
	made(t, dataVolume(imported, "Filesystem", object{"http": object{"url": suite.web.url + diskPath}}))
	made(t, dataVolume(pulled, "Filesystem", object{"registry": object{"url": "docker://" + suite.image}}))
	made(t, dataVolume(blank, "Filesystem", object{"blank": object{}}))
	removed(t, "datavolume", uploaded)
	upload(t, uploaded)
	filled(t, imported)
	clone := dataVolume(copied, "Filesystem", object{"pvc": object{"namespace": "default", "name": imported}})
	made(t, clone)
	for _, name := range volumes {
		filled(t, name)
	}

	const reader = "reader"
	made(t, pod(reader, volumes, "sh", "-c", "md5sum /*/disk.img && stat -c %s /"+blank+"/disk.img"))
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+reader, "jsonpath={.status.phase}=Succeeded"))
	sums := map[string]string{}
	for line := range strings.SplitSeq(kubectl(t, "logs", reader), "\n") {
		if sum, path, ok := strings.Cut(line, "  "); ok {
			sums[strings.Split(path, "/")[1]] = sum
		}
	}
	for _, name := range []string{copied, uploaded, pulled} {
		if sums[name] != sums[imported] || sums[name] == "" {
			t.Errorf("%s has another content than %s: %v", name, imported, sums)
		}
	}
	if sums[blank] == sums[imported] || sums[blank] == "" {
		t.Errorf("the blank disk: %v", sums)
	}
}

// upload sends the guest's disk to CDI's upload proxy, as a user does.
func upload(t *testing.T, name string) {
	t.Helper()
	proxy := kubectl(t, "get", "service", "cdi-uploadproxy", "--namespace=cdi", "-o", "jsonpath={.spec.clusterIP}")
	out, err := suite.VirtctlCommand(t.Context(), "image-upload", "dv", name, "--image-path="+suite.disk,
		"--size="+size, "--storage-class=local", "--access-mode=ReadWriteOnce", "--volume-mode=filesystem",
		"--uploadproxy-url=https://"+proxy, "--insecure").CombinedOutput()
	assert.NilError(t, err, string(out))
}
