package disk

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// checkEphemeral checks a disk on an ephemeral PVC: QEMU writes the upper layer, knows the
// format of both, and finds a disk of the PVC's size.
func checkEphemeral(t *testing.T, _ *node, d domain.Disk) {
	t.Helper()
	if len(d.Layers) != 2 || d.Layers[0].Format != "qcow2" || d.Layers[0].ReadOnly || d.Layers[1].Format != "raw" || !d.Layers[1].ReadOnly {
		t.Fatalf("%+v", d)
	}
	if base := d.Layers[1]; base.Block == (base.FDGroup != "") {
		t.Errorf("%+v", base)
	}
	header, err := os.ReadFile(d.Layers[0].Path)
	if err != nil || binary.BigEndian.Uint64(header[24:]) != 1024 {
		t.Errorf("the disk has %d bytes, %v", header[24:32], err)
	}
}

// TestEphemeralSharesItsVolume: VMs on an ephemeral PVC share it with others that read it, and with no
// VM that writes it.
func TestEphemeralSharesItsVolume(t *testing.T) {
	n := newNode(t)
	none := func(string, expand.Progress) {}
	writes := n.volume(t, "d", true, strings.Repeat("x", 1024))
	shares := writes
	shares.Source = vmspec.SourceEphemeral
	first, second, writer := n.container(t, "c1", shares), n.container(t, "c2", shares), n.container(t, "c3", writes)
	for _, r := range []record.Container{first, second} {
		if err := n.Maker.Create(t.Context(), r, none); err != nil {
			t.Fatal(err)
		}
		files, err := n.Attachments.Attach(t.Context(), r)
		defer closeAll(files)
		if err != nil {
			t.Error(err)
		}
	}
	if err := n.Maker.Create(t.Context(), writer, none); !errors.Is(err, ErrInUse) {
		t.Errorf("a writer: %v", err)
	}
	if content, err := os.ReadFile(writes.Host); err != nil || string(content) != strings.Repeat("x", 1024) {
		t.Errorf("the volume was written: %q, %v", content, err)
	}
	empty := n.volume(t, "e", false, "")
	if err := os.WriteFile(filepath.Join(empty.Host, imageFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	empty.Source = vmspec.SourceEphemeral
	if err := n.Maker.Create(t.Context(), n.container(t, "c4", empty), none); !errors.Is(err, ErrVolume) {
		t.Errorf("an empty volume: %v", err)
	}
}
