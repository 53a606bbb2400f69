package imageunpack_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// arranged returns a file in another order.
func arranged(t *testing.T, content []byte) []byte {
	t.Helper()
	a, ok, err := imageunpack.Arrange(bytes.NewReader(content), int64(len(content)))
	if err != nil || !ok {
		t.Fatalf("arranged is %v, %v", ok, err)
	}
	b, err := io.ReadAll(a.Reader())
	if err != nil {
		t.Fatal(err)
	}
	if a.Size() != int64(len(b)) {
		t.Errorf("the size is %d, and the file has %d bytes", a.Size(), len(b))
	}
	return b
}

// TestArrange: guests see the same disk, QEMU finds no fault, and the check reads all tables from the
// file's beginning.
func TestArrange(t *testing.T) {
	half := append(pattern(20*mib), make([]byte, 4*mib)...) // the other half are zeros
	for name, c := range map[string]struct {
		content []byte
		options []string
		io      []string // commands of qemu-io
		large   bool     // a table takes more than a piece
	}{
		"plain":            {content: pattern(40 * mib)},
		"small clusters":   {content: pattern(40 * mib), options: []string{"-o", "cluster_size=4096"}},
		"smallest":         {content: pattern(mib), options: []string{"-o", "cluster_size=512"}},
		"largest clusters": {content: pattern(9 * mib), options: []string{"-o", "cluster_size=2M"}, large: true},
		"zlib":             {content: half, options: []string{"-c", "-o", "cluster_size=4096"}},
		"zstd":             {content: half, options: []string{"-c", "-o", "compression_type=zstd"}},
		"version 2":        {content: half, options: []string{"-o", "compat=0.10"}},
		"subclusters":      {content: half, options: []string{"-o", "extended_l2=on"}},
		"counts of a bit":  {content: half, options: []string{"-o", "refcount_bits=1"}},
		"large counts":     {content: half, options: []string{"-o", "refcount_bits=64,cluster_size=4096"}},
		"odd size":         {content: pattern(mib + 512*3)},
		"empty":            {content: make([]byte, 8*mib)},
		"used": {content: half, options: []string{"-o", "cluster_size=4096,lazy_refcounts=on"}, io: []string{
			"discard 1M 2M", "write -z 5M 1M", "write -P 7 2500k 100k", "write -P 8 23M 1k", "write -z -u 8M 64k",
		}},
		"used subclusters": {content: half, options: []string{"-o", "cluster_size=16k,extended_l2=on"}, io: []string{
			"discard 1M 2M", "write -z 5M 3k", "write -P 7 2501k 1k", "write -P 9 22M 1k",
		}},
		"compressed, then used": {content: half, options: []string{"-c"}, io: []string{"write -P 7 0 1M", "write -P 8 22M 3k"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := filepath.Join(t.TempDir(), "before.qcow2")
			after := filepath.Join(t.TempDir(), "after.qcow2")
			write := func(path string, content []byte) {
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			content := qcow2File(t, c.content, c.options...)
			write(before, content)
			for _, command := range c.io {
				qemuTool(t, "qemu-io", "-c", command, before)
			}
			if c.io != nil {
				var err error
				if content, err = os.ReadFile(before); err != nil {
					t.Fatal(err)
				}
			}
			b := arranged(t, content)
			write(after, b)
			qemuTool(t, "qemu-img", "check", "-q", after) // fails for leaks, too
			qemuTool(t, "qemu-img", "compare", "-q", before, after)

			r := &pieces{ReaderAt: bytes.NewReader(b), has: map[int64]bool{}, quick: true}
			format, size, err := imageunpack.Inspect(r, int64(len(b)), maxDisk)
			if err != nil || format != imageunpack.QCOW2 {
				t.Fatalf("format %v, %v", format, err)
			}
			if _, want, err := imageunpack.Inspect(bytes.NewReader(content), int64(len(content)), maxDisk); size != want || err != nil {
				t.Errorf("the guest sees %d bytes, not %d, %v", size, want, err)
			}
			for i := range len(r.has) {
				if !r.has[int64(i)] && !c.large {
					t.Errorf("the check read %d pieces, not the first ones: %v", len(r.has), r.has)
					break
				}
			}
			if again := arranged(t, b); !bytes.Equal(again, b) {
				t.Error("an arranged file is arranged in another way")
			}
		})
	}
}

// TestArrangeNot: some files stay as they are.
func TestArrangeNot(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("raw"), pattern(mib), 0o600); err != nil {
		t.Fatal(err)
	}
	qemuTool(t, "qemu-img", "create", "-q", "-f", "qcow2", file("has a snapshot"), "1M")
	qemuTool(t, "qemu-img", "snapshot", "-c", "one", file("has a snapshot"))
	qemuTool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", file("has tables of 34 MiB"), "8T")
	var writes []string
	for i := range 17 {
		writes = append(writes, "-c", fmt.Sprintf("write -P 1 %dG 1k", i*500))
	}
	qemuTool(t, "qemu-io", append(writes, file("has tables of 34 MiB"))...)
	for _, name := range []string{"raw", "has a snapshot", "has tables of 34 MiB"} {
		content, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := imageunpack.Arrange(bytes.NewReader(content), int64(len(content))); ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}
