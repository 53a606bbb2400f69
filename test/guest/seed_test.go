package guest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// seed makes a NoCloud seed disk and returns qemu's arguments for it.
func seed(t *testing.T, files map[string]string) []string {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "seed.raw")
	assert.NilError(t, os.WriteFile(disk, nil, 0o644))
	assert.NilError(t, os.Truncate(disk, 1<<20))
	run(t, "", "mkfs.vfat", "-n", "CIDATA", disk)
	for name, text := range files {
		run(t, text, "mcopy", "-i", disk, "-", "::"+name)
	}
	return drive(disk, "raw", "readonly=on")
}

// drive is qemu's arguments for a disk, whose changes are dropped unless an option says otherwise.
func drive(path, format string, options ...string) []string {
	id := "disk-" + strings.ReplaceAll(filepath.Base(path), ".", "-")
	value := strings.Join(append([]string{"if=none", "id=" + id, "format=" + format, "file=" + path}, options...), ",")
	return []string{"-drive", value, "-device", "virtio-blk-pci,drive=" + id}
}

func run(t *testing.T, stdin, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
}

// overlay makes a new disk over a disk of the cache.
func overlay(t *testing.T, base string) string {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "overlay.qcow2")
	run(t, "", "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, disk)
	return disk
}
