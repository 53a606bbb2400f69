package imageunpack_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// TestNewFilesAreQEMUs holds new files against those of qemu-img, and has QEMU write their ends.
func TestNewFilesAreQEMUs(t *testing.T) {
	u := imageunpack.New(nil, imageunpack.Options{MaxDiskSize: 1 << 60})
	const l1Entry = 512 * mib // what one covers
	for _, size := range []int64{512, mib, l1Entry, l1Entry + 512, 8192*l1Entry + 512, 64 << 40} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			ours, theirs := filepath.Join(t.TempDir(), "disk"), filepath.Join(t.TempDir(), "disk")
			qemuTool(t, "qemu-img", "create", "-q", "-f", "qcow2", theirs, fmt.Sprint(size))
			if err := u.Blank(size, ours); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(describe(t, theirs), describe(t, ours)); diff != "" {
				t.Errorf("qemu-img's report of a blank disk (-its own +ours):\n%s", diff)
			}
			writeEnd(t, ours, size)

			d := imageunpack.Disk{ImageID: "sha256:" + fmt.Sprintf("%064x", size), Format: imageunpack.Raw, VirtualSize: size}
			ours, theirs = ours+"-overlay", theirs+"-overlay"
			qemuTool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-u", "-b", "nodevirt-image:"+d.ImageID, "-F", "raw", theirs, fmt.Sprint(size))
			if err := u.Overlay(d, ours); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(describe(t, theirs), describe(t, ours)); diff != "" {
				t.Errorf("qemu-img's report of an overlay (-its own +ours):\n%s", diff)
			}
		})
	}
}

// describe is qemu-img's report of a file, without its name and size on disk.
func describe(t *testing.T, path string) (info map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(qemuTool(t, "qemu-img", "info", "--output=json", path)), &info); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"filename", "actual-size", "full-backing-filename"} {
		delete(info, key)
	}
	return info
}

// writeEnd has QEMU write and read a disk's last sector, and check the file before and after.
func writeEnd(t *testing.T, path string, size int64) {
	t.Helper()
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	qemuTool(t, "qemu-img", "check", path)
	last := fmt.Sprint(size - 512)
	qemuTool(t, "qemu-io", "-f", "qcow2", "-c", "write -P 7 "+last+" 512", "-c", "read -P 7 "+last+" 512", path)
	qemuTool(t, "qemu-img", "check", path)
}
