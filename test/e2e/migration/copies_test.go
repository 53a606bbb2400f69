package migration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
)

const pvcVMI = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "masquerade": {}}]
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
}`

// copyTo has a migration copy the guest's PVC to another one, which the target's pod has.
func copyTo(from, to *machine, name string) {
	from.copied, to.annotations = []string{name}, map[string]string{vmspec.AnnotationCopiedVolumes: name}
}

// TestCopiedPVC moves a guest to a node whose pod has another PVC, and its disk with it, and back to a third PVC, a
// device that is larger. A pod without a PVC for the copy is refused, and the guest goes on.
func TestCopiedPVC(t *testing.T) {
	const size = 64 << 20
	a, b := newNodes(t)
	first, second := t.TempDir(), t.TempDir()
	disk := filepath.Join(first, "disk.img")
	assert.NilError(t, os.WriteFile(disk, nil, 0o600))
	assert.NilError(t, os.Truncate(disk, size))
	a.vmi, b.vmi = pvcVMI, pvcVMI
	a.mount("/volumes/data", first)
	b.mount("/volumes/data", second)

	guest := a.pod(t, "first", "")
	guest.start()
	guest.answers()
	boot := guest.sh("cat /proc/sys/kernel/random/boot_id")
	guest.sh("dd if=/dev/urandom of=/tmp/r bs=64k count=64 2>/dev/null; dd if=/tmp/r of=/dev/vdb bs=64k seek=100 conv=fsync 2>/dev/null")
	guest.sh("(i=0; while :; do echo $((i += 1)) >/tmp/count; sleep 0.2; done) >/dev/null 2>&1 &")
	const read = "echo 3 >/proc/sys/vm/drop_caches; sha256sum </tmp/r; dd if=/dev/vdb bs=64k skip=100 count=64 2>/dev/null | sha256sum; cat /sys/block/vdb/size"
	content := guest.sh(read)

	for name, tt := range map[string]struct {
		copied      []string
		annotations map[string]string
		want        string
	}{
		"the target expects none":  {[]string{"data"}, nil, `the source copies disk "data", for which the pod here has no PVC`},
		"the source copies none":   {nil, map[string]string{vmspec.AnnotationCopiedVolumes: "data"}, `the source does not copy disk "data"`},
		"the guest's disk is none": {[]string{"root"}, nil, `disk "root" is not copied to another PVC`},
	} {
		migration := order.Migration{Migration: uuid.NewString()}
		var id order.Identity
		err := guest.try(order.Identify, order.Departure{Migration: migration, Copied: tt.copied}, &id)
		if err == nil {
			b.annotations = tt.annotations
			if tt.annotations == nil { // its file must be there
				assert.NilError(t, os.WriteFile(filepath.Join(second, "disk.img"), []byte("x"), 0o600))
			}
			target := b.pod(t, "refused", migration.Migration)
			target.start()
			err = target.try(order.Receive, order.Reception{Migration: migration, Source: id.Fingerprint, Guest: id.Guest}, nil)
			target.stop()
			target.remove()
		}
		assert.Check(t, is.ErrorContains(err, tt.want), name)
		assert.NilError(t, os.RemoveAll(filepath.Join(second, "disk.img")))
	}
	guest.answers()

	copyTo(a, b, "data")
	moved := move(t, guest, b, "second")
	check(t, moved, boot, content, read)
	info, err := os.Stat(filepath.Join(second, "disk.img"))
	assert.NilError(t, err)
	assert.Equal(t, info.Size(), int64(size))
	const write = "dd if=/dev/urandom of=/tmp/r bs=64k count=64 2>/dev/null; dd if=/tmp/r of=/dev/vdb bs=64k seek=100 conv=fsync 2>/dev/null"
	moved.sh(write)
	content = moved.sh(read)

	// The source's file is on the way back what the target's was.
	small, large := loopfs.Device(t, size/2), loopfs.Device(t, 2*size)
	copyTo(b, a, "data")
	a.mounts, a.devices = nil, []any{map[string]any{"container_path": "/dev/data", "host_path": small, "permissions": "mrw"}}
	migration := order.Migration{Migration: uuid.NewString()}
	var id order.Identity
	moved.control(order.Identify, order.Departure{Migration: migration, Copied: b.copied}, &id)
	target := a.pod(t, "small", migration.Migration)
	target.start()
	err = target.try(order.Receive, order.Reception{Migration: migration, Source: id.Fingerprint, Guest: id.Guest}, nil)
	assert.Check(t, is.ErrorContains(err, "and its new PVC 33554432: use a larger one"))
	target.stop()
	target.remove()

	a.devices = []any{map[string]any{"container_path": "/dev/data", "host_path": large, "permissions": "mrw"}}
	third := move(t, moved, a, "third")
	check(t, third, boot, content, read)
	third.sh(write)
	assert.NilError(t, a.Restart(t.Context(), node.Shim))
	b.copied, a.copied = nil, []string{"data"}
	b.annotations = map[string]string{vmspec.AnnotationCopiedVolumes: "data"}
	content = third.sh(read)
	fourth := move(t, third, b, "fourth")
	check(t, fourth, boot, content, read)
}
