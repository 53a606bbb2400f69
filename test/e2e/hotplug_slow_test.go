//go:build slow

package e2e

import (
	"bytes"
	"encoding/json"
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
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// plugged is the answer to an order about a disk.
type plugged struct{ Name, State, Target string }

// plug gives the VM an order about a disk.
func (c *container) plug(control, argument string) (d plugged) {
	c.t.Helper()
	r := c.exec("nodevirt.io/"+control, argument)
	if r.ExitCode != 0 {
		c.t.Fatalf("%s: code %d, %q", control, r.ExitCode, r.Stderr)
	}
	assert.NilError(c.t, json.Unmarshal(r.Stdout, &d))
	return d
}

// scsiDisk waits until the guest has a SCSI disk with a serial number, or none, and returns its name.
func (c *container) scsiDisk(serial string, is bool) (name string) {
	c.t.Helper()
	wait.Until(c.t, fmt.Sprintf("the guest's disk %s, %t", serial, is), func() bool {
		all := c.guest().Disks
		i := slices.IndexFunc(all, func(d guestDisk) bool { return strings.HasPrefix(d.Name, "sd") && d.Serial == serial })
		if i >= 0 {
			name = all[i].Name
		}
		return i >= 0 == is
	})
	return name
}

// TestHotplug: a running guest gets the folder and the device of another pod as disks, writes them, and loses
// them again. The VM needs no other devices for that than each VM has.
func TestHotplug(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(suite.Dir(), "hotplug")
	assert.NilError(t, os.Mkdir(folder, 0o700))
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(folder)) })
	content := bytes.Repeat([]byte("content "), 2*mebibyte/8)
	file := filepath.Join(folder, "disk.img")
	assert.NilError(t, os.WriteFile(file, content, 0o600))
	device := loopfs.Device(t, 8*mebibyte)

	vm := vmPod(t).vm(suite.tiny).start().up()
	attachment := runPod(t, "", annotated(map[string]string{"nodevirt.io/attachment": vm.pod.config.Metadata.Uid}))
	config := attachment.newContainer("volumes", suite.busybox)
	config.Command = []string{"sleep", "1000000"}
	config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/files", HostPath: folder})
	config.Devices = append(config.Devices, &runtimeapi.Device{ContainerPath: "/volumes/raw", HostPath: device, Permissions: "mrw"})
	volumes := attachment.create(config).start()
	order := func(name string) string {
		return fmt.Sprintf(`{"disk": {"name": %q}, "container": %q}`, name, volumes.id)
	}

	for i, name := range []string{"files", "raw"} {
		want := plugged{Name: name, State: "attached", Target: fmt.Sprintf("sd%c", 'a'+i)}
		assert.Equal(t, vm.plug("disk-attach", order(name)), want)
		assert.Equal(t, vm.plug("disk-status", fmt.Sprintf(`{"name": %q}`, name)), want)
		inGuest := vm.scsiDisk(name, true)
		if name == "files" {
			assert.Equal(t, vm.disk(inGuest), digestOf(content))
		}
		vm.write(inGuest, "the guest's own")
	}
	for _, name := range []string{"files", "raw"} {
		assert.Equal(t, vm.plug("disk-detach", fmt.Sprintf(`{"name": %q}`, name)), plugged{Name: name, State: "none"})
		vm.scsiDisk(name, false)
	}
	for _, path := range []string{file, device} {
		got, err := os.ReadFile(path)
		assert.NilError(t, err)
		if !bytes.HasPrefix(got, []byte("the guest's own")) {
			t.Errorf("%s begins with %q", path, got[:16])
		}
	}
	// No process has them open any more: another VM may start with them.
	other := vmPod(t, named("other"), annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "raw", "disk": {"bus": "scsi"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "raw", "persistentVolumeClaim": {"claimName": "a"}}]}`}))
	other.vm(suite.tiny, func(c *runtimeapi.ContainerConfig) {
		c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: "/dev/raw", HostPath: device, Permissions: "mrw"})
	}).start().up()
}

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
