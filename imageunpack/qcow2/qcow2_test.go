package qcow2_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack/qcow2"
	"github.com/nodevirt/nodevirt/test/needs"
)

const mib = 1 << 20

// raw makes a raw disk of a size with data at some offsets.
func raw(t *testing.T, size int64, at map[int64]string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for offset, text := range at {
		if _, err := f.WriteAt([]byte(text), offset); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func converted(t *testing.T, f *os.File, size int64) (*qcow2.Disk, string) {
	t.Helper()
	var seen int64
	d, err := qcow2.Scan(t.Context(), f, size, func(n int64) { seen += n })
	if err != nil {
		t.Fatal(err)
	}
	if seen < size || seen > size+qcow2.Cluster {
		t.Errorf("progress of %d bytes for a disk of %d", seen, size)
	}
	var b bytes.Buffer
	if err := d.Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != d.Length() {
		t.Errorf("%d bytes; Length said %d", b.Len(), d.Length())
	}
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return d, path
}

func qemuImg(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestQEMUReadsTheSameDisk compares the guest's view of both, and has QEMU check the tables.
func TestQEMUReadsTheSameDisk(t *testing.T) {
	needs.Parts(t, "qemu-img")
	const l2 = qcow2.L2Covers
	for name, c := range map[string]struct {
		size int64
		at   map[int64]string
	}{
		"empty":               {mib, nil},
		"full":                {4 * qcow2.Cluster, map[int64]string{0: strings.Repeat("x", 4*qcow2.Cluster)}},
		"not a whole sector":  {mib + 100, map[int64]string{mib + 99: "z"}},
		"not a whole cluster": {mib + 512, map[int64]string{0: "a", mib + 511: "z"}},
		"some tables":         {20*l2 + 512, map[int64]string{0: "a", l2 - 1: "bc", 5 * l2: "d", 20*l2 + 511: "e"}},
		"several ref blocks":  {5 << 30, map[int64]string{1 << 30: strings.Repeat("y", 70*mib)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := raw(t, c.size, c.at)
			d, path := converted(t, f, c.size)
			var info struct {
				Virtual int64 `json:"virtual-size"`
			}
			if err := json.Unmarshal([]byte(qemuImg(t, "info", "--output=json", path)), &info); err != nil {
				t.Fatal(err)
			}
			if info.Virtual != (c.size+511)/512*512 || info.Virtual != d.Size() {
				t.Errorf("a disk of %d bytes has %d, and says %d", c.size, info.Virtual, d.Size())
			}
			qemuImg(t, "check", path)
			qemuImg(t, "compare", "-f", "raw", "-F", "qcow2", f.Name(), path)
		})
	}
}

// TestSparse: zeros take no space, whether or not they are a hole.
func TestSparse(t *testing.T) {
	hole := raw(t, 64*mib, map[int64]string{10 * mib: "data"})
	zeros := raw(t, 64*mib, map[int64]string{0: string(make([]byte, 8*mib)), 10 * mib: "data"})
	one, first := converted(t, hole, 64*mib)
	_, second := converted(t, zeros, 64*mib)
	a, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("equal disks result in different files")
	}
	// The header, two tables of counts, two tables of clusters, and the data.
	if one.Length() != 6*qcow2.Cluster {
		t.Errorf("%d bytes", one.Length())
	}
}

func TestBounds(t *testing.T) {
	f := raw(t, mib, nil)
	for _, size := range []int64{0, -1, qcow2.MaxSize + 1} {
		if _, err := qcow2.Scan(t.Context(), f, size, nil); err == nil || !strings.Contains(err.Error(), fmt.Sprint(size)) {
			t.Errorf("%d: %v", size, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	d, err := qcow2.Scan(ctx, raw(t, mib, map[int64]string{0: "a"}), mib, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := qcow2.Scan(ctx, f, mib, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("scan: %v", err)
	}
	if err := d.Write(ctx, new(bytes.Buffer)); !errors.Is(err, context.Canceled) {
		t.Errorf("write: %v", err)
	}
}
