package imageunpack_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// TestCheckOverlay: what the package makes is an overlay, and what names another file is none.
func TestCheckOverlay(t *testing.T) {
	u, dir := &imageunpack.Unpacker{}, t.TempDir()
	const size, most = 1 << 30, 1 << 40
	overlay := filepath.Join(dir, "overlay.qcow2")
	assert.NilError(t, u.Overlay(imageunpack.Disk{ImageID: "sha256:1", VirtualSize: size, Format: imageunpack.Raw}, overlay))
	data, err := os.ReadFile(overlay)
	assert.NilError(t, err)
	got, err := imageunpack.CheckOverlay(bytes.NewReader(data), int64(len(data)), most)
	assert.NilError(t, err)
	assert.Equal(t, got, int64(size))
	// It is no disk of an image.
	_, _, err = imageunpack.Check(bytes.NewReader(data), int64(len(data)), most)
	assert.ErrorIs(t, err, imageunpack.ErrBackingFile)

	for name, change := range map[string]func(b []byte) []byte{
		"another file": func(b []byte) []byte {
			return bytes.Replace(b, []byte("nodevirt-image:"), []byte("/etc/shadow\x00\x00\x00\x00"), 1)
		},
		"data file": func(b []byte) []byte { b[79] |= 4; return b },
		"long name": func(b []byte) []byte { binary.BigEndian.PutUint32(b[16:], 1<<20); return b },
		"truncated": func(b []byte) []byte { return b[:60<<10] },
		"raw":       func(b []byte) []byte { return make([]byte, len(b)) },
		"too large": func(b []byte) []byte { binary.BigEndian.PutUint64(b[24:], 1<<50); return b },
	} {
		b := change(bytes.Clone(data))
		if _, err := imageunpack.CheckOverlay(bytes.NewReader(b), int64(len(b)), most); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
