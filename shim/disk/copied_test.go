package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack/persist"
)

// TestCopied: the PVC of a guest that comes with a copy of its disk gets the length of that, unless it is a device, and
// may not exist as a file before.
func TestCopied(t *testing.T) {
	n := newNode(t)
	file, device := n.volume(t, "file", false, ""), n.volume(t, "device", true, "12345678")
	file.Copied, device.Copied = true, true
	r := n.container(t, "c1", file, device)
	r.Incoming = "m"
	if err := n.Maker.Create(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		length, fit int64
		want        string
	}{{8, 0, ""}, {5, 5, ""}, {9, 0, "has 9 bytes, and its new PVC 8"}, {0, 0, "has 0 bytes"}} {
		if fit, err := n.Attachments.Fit(r, device, tt.length); fit != tt.fit || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("a device for %d bytes: %d, %v", tt.length, fit, err)
		}
	}
	for _, length := range []int64{testMiB, 512} {
		if fit, err := n.Attachments.Fit(r, file, length); fit != 0 || err != nil {
			t.Errorf("a file for %d bytes: %d, %v", length, fit, err)
		}
		if got, err := n.Attachments.Length(r, file); got != length || err != nil {
			t.Errorf("a file of %d bytes has %d: %v", length, got, err)
		}
	}
	content := r.Disks["device"]
	content.Length = 5
	r.Disks["device"] = content
	if got, err := n.Attachments.Length(r, device); got != 5 || err != nil {
		t.Errorf("a disk of 5 bytes has %d: %v", got, err)
	}
	if d := n.Attachments.Describe(r)[1].Layers[0]; d.Length != 5 {
		t.Errorf("the device is described as %+v", d)
	}
	for name, spoil := range map[string]func(){"read-only": func() { file.ReadOnly = true }, "shared": func() { file.ReadOnly, file.Shareable = false, true }} {
		spoil()
		if _, err := n.Attachments.Fit(r, file, 8); !errors.Is(err, ErrVolume) {
			t.Errorf("a %s file: %v", name, err)
		}
	}
}

// TestCopiedInUse: a file that another process uses becomes no copy.
func TestCopiedInUse(t *testing.T) {
	n := newNode(t)
	file := n.volume(t, "file", false, "content")
	file.Copied = true
	r := n.container(t, "c1", file)
	r.Incoming = "m"
	f, err := os.OpenFile(filepath.Join(file.Host, imageFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := persist.Lock(f); err != nil {
		t.Fatal(err)
	}
	if err := n.Maker.Create(t.Context(), r, nil); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("a file that is used: %v", err)
	}
	if _, err := n.Attachments.Fit(r, file, 8); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("a file that is used by one that plugs it: %v", err)
	}
}

// TestCopiedPlugged: the file of a disk that the guest has got since it runs is made, which no start of a container does.
func TestCopiedPlugged(t *testing.T) {
	n := newNode(t)
	file := n.volume(t, "file", false, "")
	r := n.container(t, "c1")
	if _, err := n.Attachments.Fit(r, file, testMiB); err == nil {
		t.Error("a file is made for a guest that does not come")
	}
	file.Copied, r.Incoming = true, "m"
	if fit, err := n.Attachments.Fit(r, file, testMiB); fit != 0 || err != nil {
		t.Errorf("%d, %v", fit, err)
	}
	if info, err := os.Stat(filepath.Join(file.Host, imageFile)); err != nil || info.Size() != testMiB {
		t.Errorf("%v, %v", info, err)
	}
}
