package badinput

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// diskCases are files in the right place that are no disks, or not only disks.
func diskCases(t *testing.T) []badCase {
	t.Helper()
	hostile, err := guest.HostileDisks(t.Context(), t.TempDir())
	assert.NilError(t, err)
	cases := []badCase{
		{name: "gzip", files: []images.File{{Name: "disk", Data: zipped(t)}}},
		{name: "half of a qcow2", files: []images.File{{Name: "disk", Data: halfQCOW2(t)}}},
	}
	for _, d := range hostile {
		cases = append(cases, badCase{
			name: d.Name, files: folder(images.File{Name: "disk.img", From: d.Path}),
		})
	}
	for i := range cases {
		cases[i].at, cases[i].code = atCreate, codes.InvalidArgument
	}
	return cases
}

// inMode has disks reach their VMs in a way.
func inMode(mode vmspec.Mode, cases []badCase) []badCase {
	for i := range cases {
		cases[i].pod = annotated(vmspec.AnnotationDiskMode, string(mode))
	}
	return cases
}

func zipped(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(make([]byte, mebibyte)); err != nil {
		t.Fatal(err)
	}
	assert.NilError(t, w.Close())
	return b.Bytes()
}

// halfQCOW2 is what a copy that was cut off leaves.
func halfQCOW2(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	from, to := filepath.Join(dir, "raw"), filepath.Join(dir, "qcow2")
	content := bytes.Repeat([]byte{1}, mebibyte)
	assert.NilError(t, os.WriteFile(from, content, 0o600))
	cmd := exec.CommandContext(t.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", from, to)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	disk, err := os.ReadFile(to)
	assert.NilError(t, err)
	return disk[:len(disk)/2]
}
