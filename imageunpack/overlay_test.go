package imageunpack_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// imageOpts is how qemu-io opens an overlay whose backing file is f.
func imageOpts(d imageunpack.Disk, path string, f *os.File) string {
	return fmt.Sprintf("driver=qcow2,file.driver=file,file.filename=%s,backing.driver=%s,"+
		"backing.file.driver=file,backing.file.filename=/proc/%d/fd/%d,backing.read-only=on,backing.file.read-only=on",
		path, d.Format, os.Getpid(), f.Fd())
}

// writeOverlay reads the disk's first sector through the overlay, writes another, and reads that.
func (n *node) writeOverlay(d imageunpack.Disk, path string) {
	n.t.Helper()
	f, err := n.Open(n.ctx, d, d.Path)
	n.check(err)
	defer f.Close()
	out := qemuTool(n.t, "qemu-io", "--image-opts", "-c", "read -v 0 16",
		"-c", "write -P 0xaa 4096 512", "-c", "read -P 0xaa 4096 512", imageOpts(d, path, f))
	want := ""
	for _, b := range pattern(16) {
		want += fmt.Sprintf(" %02x", b)
	}
	if !strings.Contains(out, want) || strings.Contains(out, "failed") {
		n.t.Errorf("the overlay does not show the disk:\n%s\nwant %s", out, want)
	}
}

func TestOverlay(t *testing.T) {
	raw := pattern(mib)
	for format, content := range map[imageunpack.Format][]byte{
		imageunpack.Raw:   raw,
		imageunpack.QCOW2: qcow2File(t, raw),
	} {
		t.Run(string(format), func(t *testing.T) {
			n := newNode(t)
			ref, id := n.load(layer{file("disk", content)})
			d := n.acquire("owner", ref, "")
			path := filepath.Join(t.TempDir(), "overlay.qcow2")
			defer syscall.Umask(syscall.Umask(0))
			n.check(n.Overlay(d, path))

			info, err := os.Stat(path)
			n.check(err)
			if info.Mode() != 0o600 {
				t.Errorf("mode %v, want 0600", info.Mode())
			}
			var got map[string]any
			n.check(json.Unmarshal([]byte(qemuTool(t, "qemu-img", "info", "--output=json", path)), &got))
			for key, want := range map[string]any{
				"format": "qcow2", "virtual-size": float64(mib),
				"backing-filename": "nodevirt-image:" + id, "backing-filename-format": string(format),
			} {
				if diff := cmp.Diff(want, got[key]); diff != "" {
					t.Errorf("%s: %s", key, diff)
				}
			}
			// QEMU does not look for a file of that name, even if there is one.
			decoy := filepath.Join(filepath.Dir(path), "nodevirt-image:"+id)
			n.check(os.WriteFile(decoy, content, 0o600))
			cmd := exec.CommandContext(t.Context(), "qemu-io", "-c", "read 0 512", path)
			cmd.Dir = filepath.Dir(path)
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Unknown protocol") {
				t.Errorf("QEMU followed the backing file's name: %v\n%s", err, out)
			}
			n.writeOverlay(d, path)
		})
	}
}

func TestOverlayFails(t *testing.T) {
	n := newNode(t)
	d := imageunpack.Disk{Image: "x", Format: imageunpack.Raw, VirtualSize: mib}
	dir := t.TempDir()
	if err := n.Overlay(d, filepath.Join(dir, "none", "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an overlay in a folder that isn't there: %v", err)
	}
	if err := n.Overlay(d, "relative"); err == nil {
		t.Error("made an overlay at a relative path")
	}
	left, err := os.ReadDir(dir)
	n.check(err)
	if len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	there := filepath.Join(dir, "there")
	n.check(os.WriteFile(there, []byte("another machine's"), 0o600))
	if err := n.Overlay(d, there); err == nil {
		t.Error("replaced a file")
	}
	if b, err := os.ReadFile(there); err != nil || string(b) != "another machine's" {
		t.Errorf("a file that was there is now %q (%v)", b, err)
	}
}

func TestVolumeOverlay(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(t.TempDir(), "overlay.qcow2")
	n.check(n.VolumeOverlay(mib-1, path))
	var got map[string]any
	n.check(json.Unmarshal([]byte(qemuTool(t, "qemu-img", "info", "--output=json", path)), &got))
	for key, want := range map[string]any{"virtual-size": float64(mib), "backing-filename": "nodevirt-volume:", "backing-filename-format": "raw"} {
		if diff := cmp.Diff(want, got[key]); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
	if err := n.VolumeOverlay(maxDisk+1, path+".large"); !errors.Is(err, imageunpack.ErrSize) {
		t.Errorf("a large volume: %v", err)
	}
}

func TestBlank(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(t.TempDir(), "blank.qcow2")
	n.check(n.Blank(3*mib, path))
	if out := qemuTool(t, "qemu-img", "info", path); !strings.Contains(out, "virtual size: 3 MiB") {
		t.Errorf("qemu-img says %s", out)
	}
	if err := n.Blank(3*mib, path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a disk that is there: %v", err)
	}
	if err := n.Blank(maxDisk+mib, path+".large"); !errors.Is(err, imageunpack.ErrSize) {
		t.Errorf("a disk too large: %v", err)
	}
}

// TestOverlaysEnd: what a guest writes to a disk has at most the disk's size, and qcow2's tables.
func TestOverlaysEnd(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(t.TempDir(), "empty.qcow2")
	n.check(n.Blank(mib, path))
	qemuTool(t, "qemu-io", "-f", "qcow2", "-c", "write -P 1 0 1M", path)
	for _, beyond := range []string{"write -P 2 1M 64k", "write -P 2 1000k 64k", "write -P 2 1G 1M"} {
		out, err := exec.CommandContext(t.Context(), "qemu-io", "-f", "qcow2", "-c", beyond, path).CombinedOutput()
		if err == nil && !strings.Contains(string(out), "Input/output error") {
			t.Errorf("%s: %s", beyond, out)
		}
	}
	info, err := os.Stat(path)
	n.check(err)
	if info.Size() > 2*mib {
		t.Errorf("a disk of 1 MiB takes %d bytes", info.Size())
	}
}
