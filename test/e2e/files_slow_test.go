//go:build slow

package e2e

import (
	"cmp"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// showFiles is a guest's program that shows a disk: its label, and its files by the kernel's Rock Ridge
// and, with the word norock, by its Joliet. A large file is a digest.
const showFiles = `#!/bin/sh
export PATH=/bin
read -r disk options
blockdev --flushbufs "/dev/$disk"
echo "label $(dd if="/dev/$disk" bs=1 skip=32808 count=32 2>/dev/null | sed 's/ *$//')"
mkdir -p /files && mount -t iso9660 -o "ro${options:+,$options}" "/dev/$disk" /files && cd /files || exit 1
find . -type f | sort | while read -r f; do
	if [ "$(stat -c %s "$f")" -gt 100 ]; then
		echo "$f $(sha256sum <"$f" | cut -d ' ' -f 1)"
	else
		content=$(hexdump -v -e '/1 "%02x"' "$f")
		echo "$f ${content:--}"
	fi
done
cd / && umount /files
`

// shown is what the program shows of a disk with these files.
func shown(label string, files map[string]string) string {
	lines := []string{"label " + label}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := cmp.Or(hex.EncodeToString([]byte(files[name])), "-")
		if len(files[name]) > 100 {
			content = digestOf([]byte(files[name]))
		}
		lines = append(lines, "./"+name+" "+content)
	}
	return strings.Join(lines, "\n") + "\n"
}

// volumeOf makes a folder as a kubelet does for a volume of a kind.
func volumeOf(t *testing.T, kind, name string, files map[string]string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "volumes", "kubernetes.io~"+kind, name)
	version := filepath.Join(folder, "..2026_11_22")
	assert.NilError(t, os.MkdirAll(version, 0o755))
	assert.NilError(t, os.Symlink(filepath.Base(version), filepath.Join(folder, "..data")))
	for key, content := range files {
		assert.NilError(t, os.MkdirAll(filepath.Dir(filepath.Join(version, key)), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(version, key), []byte(content), 0o600))
		first, _, _ := strings.Cut(key, "/")
		assert.NilError(t, os.Symlink(filepath.Join("..data", first), filepath.Join(folder, first)))
	}
	return folder
}

// TestFilesAsDisks: a guest reads what Kubernetes' objects hold, on each bus that it has drivers for, and
// does not see later changes.
func TestFilesAsDisks(t *testing.T) {
	t.Parallel()
	const long = "a-name-that-is-longer-than-ISO-9660-allows.conf"
	configured := map[string]string{"key": "value\n", "binary.bin": "\x00\xff", "large": strings.Repeat("0123456789abcdef", 1<<15), "empty": ""}
	account := map[string]string{"token": strings.Repeat("ey.", 300), "ca.crt": "-----BEGIN CERTIFICATE-----\n", "namespace": "default"}
	config := volumeOf(t, "configmap", "config", configured)
	with := func(c *runtimeapi.ContainerConfig) {
		for name, folder := range map[string]string{
			"config":  config,
			"secret":  volumeOf(t, "secret", "secret", map[string]string{long: "s"}),
			"pod":     volumeOf(t, "downward-api", "pod", map[string]string{"about/labels": "a=\"b\"\n"}),
			"answers": volumeOf(t, "secret", "answers", map[string]string{"Autounattend.xml": "<a/>"}),
			"drive":   volumeOf(t, "projected", "drive", map[string]string{"userdata": "#cloud-config\n"}),
			"account": volumeOf(t, "projected", "account", account),
		} {
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/" + name, HostPath: folder, Readonly: true})
		}
	}
	vm := vmPod(t, annotated(map[string]string{
		"nodevirt.io/cloud-init-meta-data": `{"instance-id": "files"}`,
		"nodevirt.io/vmi": `{
		"domain": {"devices": {"disks": [
			{"name": "root", "disk": {"bus": "virtio"}},
			{"name": "config", "disk": {"bus": "virtio"}},
			{"name": "secret", "disk": {"bus": "virtio"}},
			{"name": "pod", "disk": {"bus": "scsi"}},
			{"name": "answers", "cdrom": {"bus": "scsi"}},
			{"name": "drive", "disk": {"bus": "virtio"}},
			{"name": "account", "disk": {"bus": "virtio"}}
		]}},
		"volumes": [
			{"name": "root", "containerDisk": {"image": "r"}},
			{"name": "config", "configMap": {"name": "a"}},
			{"name": "secret", "secret": {"secretName": "a", "volumeLabel": "OEMDRV"}},
			{"name": "pod", "downwardAPI": {"fields": [{"path": "about/labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
			{"name": "answers", "sysprep": {"secret": {"name": "a"}}},
			{"name": "account", "serviceAccount": {"serviceAccountName": "a"}},
			{"name": "drive", "cloudInitConfigDrive": {"secretRef": {"name": "a"}, "networkData": "{}"}}
		]}`,
	})).vm(suite.tiny, with).start().up()
	vm.post("/cgi-bin/program", showFiles)

	want := map[string]string{
		"vdb": shown("cfgdata", configured),
		"vdc": shown("OEMDRV", map[string]string{long: "s"}),
		"sda": shown("cfgdata", map[string]string{"about/labels": "a=\"b\"\n"}),
		"vde": shown("cfgdata", account),
		"sr0": shown("unattendCD", map[string]string{"Autounattend.xml": "<a/>"}),
		"vdd": shown("config-2", map[string]string{
			"openstack/latest/user_data": "#cloud-config\n", "openstack/latest/network_data.json": "{}",
			"openstack/latest/meta_data.json": `{"hostname":"` + vm.pod.config.Hostname + `","instance_id":"files","uuid":"files"}` + "\n",
		}),
	}
	for disk, want := range want {
		for _, names := range []string{"", "norock"} {
			if diff := gocmp.Diff(want, vm.runs(disk+" "+names+"\n")); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", disk, names, diff)
			}
		}
	}
	for _, d := range vm.guest().Disks[1:] {
		if !d.ReadOnly && d.Name != "vda" {
			t.Errorf("the guest can write %s", d.Name)
		}
	}
	assert.NilError(t, os.WriteFile(filepath.Join(config, "..data", "key"), []byte("changed\n"), 0o600))
	vm.reboots()
	vm.post("/cgi-bin/program", showFiles)
	if diff := gocmp.Diff(want["vdb"], vm.runs("vdb\n")); diff != "" {
		t.Errorf("after a restart of the guest (-want +got):\n%s", diff)
	}
}
