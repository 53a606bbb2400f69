//go:build slow

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestHotplugBuses: a running guest gets a disk on a PCI port, and a medium in a drive that was empty, and loses
// both again.
func TestHotplugBuses(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(suite.Dir(), "hotplug-buses")
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(folder)) })
	contents := map[string][]byte{}
	boot, err := guest.TinyWithSATA(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	vm := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "media", "cdrom": {"bus": "sata"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}]}`})).vm(pushed(t, "tiny-sata:2", boot, images.DiskOptions{})).start().up()
	inserted := func() bool {
		digest, err := suite.Fetch(t.Context(), http.MethodGet, vm.url("/cgi-bin/block?sr0"), "") // fails for an empty drive
		return err == nil && strings.TrimSpace(digest) == digestOf(contents["media"])
	}
	attachment := runPod(t, "", annotated(map[string]string{"nodevirt.io/attachment": vm.pod.config.Metadata.Uid}))
	config := attachment.newContainer("volumes", suite.busybox)
	config.Command = []string{"sleep", "1000000"}
	for _, name := range []string{"fast", "media"} {
		host := filepath.Join(folder, name)
		assert.NilError(t, os.MkdirAll(host, 0o700))
		contents[name] = bytes.Repeat([]byte(name + "----------")[:8], 2*mebibyte/8)
		assert.NilError(t, os.WriteFile(filepath.Join(host, "disk.img"), contents[name], 0o600))
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/" + name, HostPath: host})
	}
	volumes := attachment.create(config).start()
	order := func(name, device string) string {
		return fmt.Sprintf(`{"disk": {"name": %q, %s}, "container": %q}`, name, device, volumes.id)
	}
	for range 2 {
		assert.Equal(t, vm.plug("disk-attach", order("fast", `"disk": {"bus": "virtio"}`)), plugged{Name: "fast", State: "attached", Target: "vdb"})
		wait.Until(t, "the guest has the disk", func() bool {
			return slices.ContainsFunc(vm.guest().Disks, func(d guestDisk) bool { return d.Name == "vdb" && d.Serial == "fast" })
		})
		assert.Equal(t, vm.disk("vdb"), digestOf(contents["fast"]))
		assert.Equal(t, vm.plug("disk-attach", order("media", `"cdrom": {"bus": "sata"}`)), plugged{Name: "media", State: "attached", Target: "sda"})
		wait.Until(t, "the guest has the medium", inserted)
		for _, name := range []string{"fast", "media"} {
			assert.Equal(t, vm.plug("disk-detach", fmt.Sprintf(`{"name": %q}`, name)), plugged{Name: name, State: "none"})
		}
		wait.Until(t, "the guest has lost both", func() bool {
			return !inserted() &&
				!slices.ContainsFunc(vm.guest().Disks, func(d guestDisk) bool { return d.Name == "vdb" })
		})
	}
}
