//go:build slow

package migration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	plug "github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

const withDrive = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "media", "cdrom": {"bus": "scsi"}}],
		"interfaces": [{"name": "default", "masquerade": {}}]
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}]
}`

// volumes are those of the attachment pods: what a kubelet would mount on each node.
type volumes struct{ device, files, media string }

// attachment makes the attachment pod of a VM, and returns its container for each volume.
func (s volumes) attachment(t *testing.T, v *vm) map[string]string {
	t.Helper()
	image, err := v.PushBusybox(t.Context())
	assert.NilError(t, err)
	p := v.NewPod("attachment")
	metadata := v.config["metadata"].(map[string]any)
	p["annotations"] = map[string]any{plug.Annotation: metadata["uid"]}
	a := &vm{machine: v.machine, t: t, config: p}
	a.sandbox, err = v.RunPod(t.Context(), p, "")
	assert.NilError(t, err)
	t.Cleanup(a.remove)
	v.attached = a
	c := node.NewContainer("volumes", image, "sleep", "1000000")
	c["devices"] = []any{map[string]any{"container_path": "/volumes/raw", "host_path": s.device, "permissions": "mrw"}}
	c["mounts"] = []any{
		map[string]any{"container_path": "/volumes/files", "host_path": s.files},
		map[string]any{"container_path": "/volumes/media", "host_path": s.media},
	}
	a.id, err = v.CreateContainer(t.Context(), a.sandbox, p, c)
	assert.NilError(t, err)
	_, err = v.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: a.id})
	assert.NilError(t, err)
	return map[string]string{"raw": a.id, "files": a.id, "media": a.id}
}

// serial is the guest's name of the SCSI disk with a serial number; empty if there is none.
func (v *vm) serial(number string) string {
	v.t.Helper()
	return v.sh(`for d in /sys/block/sd*; do [ "$(tail -c +5 $d/device/vpd_pg80 2>/dev/null)" = '` + number + `' ] && echo "${d##*/}"; done; :`)
}

// detach takes a disk away.
func (v *vm) detach(name string) {
	v.t.Helper()
	wait.Until(v.t, "the VM without disk "+name, func() bool {
		var d plug.Disk
		v.control(plug.Detach, plug.Name{Name: name}, &d)
		return d.State == plug.None
	})
}

// openFiles returns the processes that have a file open.
func openFiles(t *testing.T, path string) (all []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	assert.NilError(t, err)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == path {
			program, _ := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(link)), "comm"))
			all = append(all, link+" "+strings.TrimSpace(string(program)))
		}
	}
	return all
}

// TestPluggedDisks moves a guest with disks and a medium that it got while it ran, on volumes that both nodes have. It
// writes and loses them on the target, gets one again, and moves back. A migration that is cancelled leaves none of them
// on the target.
func TestPluggedDisks(t *testing.T) {
	a, b := newNodes(t)
	dir := t.TempDir()
	s := volumes{device: loopfs.Device(t, 16<<20), files: filepath.Join(dir, "files"), media: filepath.Join(dir, "media")}
	file, medium := filepath.Join(s.files, "disk.img"), filepath.Join(s.media, "disk.img")
	assert.NilError(t, errors.Join(os.Mkdir(s.files, 0o700), os.Mkdir(s.media, 0o700)))
	assert.NilError(t, errors.Join(os.WriteFile(file, make([]byte, 8<<20), 0o600), os.WriteFile(medium, bytes.Repeat([]byte("medium!\n"), 1<<18), 0o600)))
	for _, m := range []*machine{a, b} {
		m.vmi = withDrive
		m.attach = s.attachment
	}
	first := a.pod(t, "first", "")
	first.start()
	first.answers()
	containers := s.attachment(t, first)
	attach := func(v *vm, name, device string) (d plug.Disk) {
		t.Helper()
		v.control(plug.Attach, plug.Attachment{Disk: json.RawMessage(fmt.Sprintf(`{"name": %q, %s}`, name, device)), Container: containers[name]}, &d)
		assert.Equal(t, d.State, plug.Attached)
		return d
	}
	assert.Equal(t, attach(first, "raw", `"disk": {"bus": "virtio"}`).Target, "vdb")
	attach(first, "files", `"disk": {"bus": "scsi"}`)
	attach(first, "media", `"cdrom": {"bus": "scsi"}`)
	wait.Until(t, "the guest has all", func() bool {
		return first.serial("files") != "" && first.sh("cat /sys/block/vdb/size; dd if=/dev/sr0 bs=8 count=1 2>/dev/null") == "32768\nmedium!"
	})
	boot := first.sh("cat /proc/sys/kernel/random/boot_id")
	first.sh("(i=0; while :; do echo $((i += 1)) >/tmp/count; sleep 0.2; done) >/dev/null 2>&1 &")
	write := func(v *vm, at int) {
		t.Helper()
		v.sh(fmt.Sprintf("dd if=/dev/urandom of=/tmp/r bs=64k count=16 2>/dev/null; for d in vdb %s; do dd if=/tmp/r of=/dev/$d bs=64k seek=%d conv=fsync 2>/dev/null; done",
			v.serial("files"), at))
	}
	// read is a line that prints digests of the disks and of the medium.
	read := func(v *vm) string {
		t.Helper()
		return "echo 3 >/proc/sys/vm/drop_caches; for d in vdb " + v.serial("files") + " sr0; do dd if=/dev/$d bs=64k count=128 2>/dev/null | sha256sum; done"
	}
	write(first, 10)
	content := first.sh(read(first))

	for name, end := range map[string]func(order.Migration){
		"cancelled":                  func(m order.Migration) { first.control(order.Cancel, m, nil) },
		"the target's shim restarts": func(order.Migration) { assert.NilError(t, b.Restart(t.Context(), node.Shim)) },
	} {
		migration, target := begin(t, first, b, "ended", 1<<20)
		wait.Until(t, "it copies", func() bool {
			var r order.Report
			first.control(order.Status, migration, &r)
			return r.Processed > 1<<20
		})
		if err := first.try(plug.Detach, plug.Name{Name: "raw"}, nil); err == nil {
			t.Errorf("%s: a disk is detached while the guest moves", name)
		}
		end(migration)
		if r := first.over(migration.Migration); r.State != string(handover.Kept) {
			t.Errorf("%s: the source reports %+v", name, r)
		}
		target.ended()
		nodes, err := filepath.Glob("/dev/nodevirt-" + target.id + "-*")
		assert.NilError(t, err)
		assert.Equal(t, len(nodes), 0, name)
		target.remove()
		first.answers()
		assert.Equal(t, first.sh(read(first)), content, name)
		write(first, 20)
		content = first.sh(read(first))
	}

	second := move(t, first, b, "second")
	check(t, second, boot, content, read(second))
	write(second, 30)
	assert.NilError(t, b.Restart(t.Context(), node.Shim))
	second.answers()
	second.detach("files")
	wait.Until(t, "the guest has lost its disk", func() bool { return second.serial("files") == "" })
	second.detach("media")
	for _, path := range []string{file, medium} {
		if open := openFiles(t, path); len(open) > 0 {
			t.Errorf("%s is open: %v", path, open)
		}
	}
	containers = s.attachment(t, second)
	attach(second, "media", `"cdrom": {"bus": "scsi"}`)
	attach(second, "files", `"disk": {"bus": "scsi"}`)
	wait.Until(t, "the guest has it again", func() bool { return second.serial("files") != "" })
	content = second.sh(read(second))

	third := move(t, second, a, "third")
	check(t, third, boot, content, read(third))
	third.detach("raw")
	wait.Until(t, "the guest has lost its disk", func() bool { return third.sh("[ -e /sys/block/vdb ] || echo gone") == "gone" })
	third.detach("files")
	third.detach("media")
	for _, path := range []string{file, medium, s.device} {
		open := slices.DeleteFunc(openFiles(t, path), func(s string) bool { return !strings.Contains(s, " qemu") })
		if len(open) > 0 {
			t.Errorf("%s is open: %v", path, open)
		}
	}
	third.stop()
	third.remove()
}
