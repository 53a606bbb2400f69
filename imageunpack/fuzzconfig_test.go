package imageunpack_test

import (
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// FuzzDecodeConfig decodes an image's config, and looks whether the image is for this node.
func FuzzDecodeConfig(f *testing.F) {
	f.Add([]byte(`{"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": []}}`))
	f.Add([]byte(`{"rootfs": {"diff_ids": ["sha256:"]}}`))
	f.Fuzz(func(t *testing.T, blob []byte) {
		os, arch, layers, err := imageunpack.DecodeConfig(blob)
		if err == nil {
			for _, l := range layers {
				if err := l.Validate(); err != nil {
					t.Errorf("layer %q: %v", l, err)
				}
			}
			err = imageunpack.CheckPlatform(os, arch)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, imageunpack.ErrUnusable) {
			t.Errorf("an error that isn't the image's: %v", err)
		}
		if text := err.Error(); len(text) > 1000 || !utf8.ValidString(text) {
			t.Errorf("an error of %d bytes: %.200q", len(text), text)
		}
	})
}
