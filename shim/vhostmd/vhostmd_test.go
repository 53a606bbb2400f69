package vhostmd_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/shim/vhostmd"
)

// TestDisk reads the disk as vm-dump-metrics does.
func TestDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.img")
	if err := vhostmd.Create(path); err != nil {
		t.Fatal(err)
	}
	if text := dump(t, path); text != "<metrics></metrics>\n" {
		t.Errorf("a new disk has %q", text)
	}
	metrics, err := vhostmd.Node{Name: "node-1", Proc: "testdata/proc", Sys: "testdata/sys"}.Metrics(time.Unix(1800000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	metrics = append(metrics, vhostmd.Number(vhostmd.VM, "ResourceProcessorLimit", "", 2), vhostmd.Text(vhostmd.VM, "Escaped", "a<b"))
	if err := vhostmd.Write(path, metrics); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, dump(t, path), "metrics.xml")
	if err := vhostmd.Write(path, metrics[:1]); err != nil {
		t.Fatal(err)
	}
	if text := dump(t, path); strings.Count(text, "<metric ") != 1 {
		t.Errorf("after a shorter one the disk has %q", text)
	}
}

// dump checks the header and returns the document.
func dump(t *testing.T, path string) string {
	t.Helper()
	disk, err := os.ReadFile(path)
	if err != nil || len(disk) != 262144 || string(disk[:4]) != "mvbd" {
		t.Fatalf("%d bytes, %v", len(disk), err)
	}
	word := func(at int) uint32 { return binary.BigEndian.Uint32(disk[at:]) }
	text := disk[16 : 16+word(12)]
	var sum uint32
	for _, b := range text {
		sum += uint32(b)
	}
	if word(4) != 0 || word(8) != sum {
		t.Errorf("busy %d, sum %d, want 0 and %d", word(4), word(8), sum)
	}
	return string(text)
}

// TestWriteBounds: a disk keeps its size, and the file of one that is gone is not made.
func TestWriteBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.img")
	if err := vhostmd.Write(path, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing disk: %v", err)
	}
	if err := vhostmd.Create(path); err != nil {
		t.Fatal(err)
	}
	if err := vhostmd.Write(path, []vhostmd.Metric{vhostmd.Text(vhostmd.VM, "Long", strings.Repeat("x", vhostmd.Size))}); err == nil {
		t.Error("too many bytes are written")
	}
	if text := dump(t, path); text != "<metrics></metrics>\n" {
		t.Errorf("the disk has %q", text)
	}
}

// TestNodeWithoutMetrics: what can't be read is missing.
func TestNodeWithoutMetrics(t *testing.T) {
	metrics, err := vhostmd.Node{Name: "node-1", Proc: t.TempDir(), Sys: t.TempDir()}.Metrics(time.Now())
	if err == nil || len(metrics) != 5 || !strings.Contains(err.Error(), "no CPU") {
		t.Errorf("%v, %v", metrics, err)
	}
}
