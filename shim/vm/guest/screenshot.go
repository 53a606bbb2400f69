package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/turns"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

const (
	// MaxScreenshots is how many pictures the shim makes at once. Each may need some hundred MiB of memory.
	MaxScreenshots = bounds.Screenshots
	// NamespaceScreenshots is how many of these are of one namespace.
	NamespaceScreenshots = bounds.NamespaceScreenshots
)

// screenshot is the control that returns a picture of the guest's display, as PNG.
func screenshot(s screens) control {
	others := turns.New("other screenshots", MaxScreenshots, NamespaceScreenshots)
	return func(ctx context.Context, v *table.VM) ([]byte, error) {
		r := v.Record()
		if !r.Spec.Display {
			return nil, errors.New("the VM has no display")
		}
		ctx, cancel := background.AtMost(ctx, patience)
		defer cancel()
		end, err := others.Take(ctx, r.Sandbox.Value.GetMetadata().GetNamespace(), func() {})
		if err != nil {
			return nil, err
		}
		defer end()
		picture, err := s.Screenshot(ctx, r.Domain.UUID)
		if err != nil {
			return nil, err
		}
		return toPNG(picture)
	}
}

// toPNG converts a picture of QEMU's, which is PNG already or a portable pixmap
// (ppm(5)) with 8 bits for each colour.
func toPNG(picture []byte) ([]byte, error) {
	if bytes.HasPrefix(picture, []byte("\x89PNG\r\n\x1a\n")) {
		return picture, nil
	}
	var width, height, depth int
	reader := bytes.NewReader(picture)
	if _, err := fmt.Fscanf(reader, "P6\n%d %d\n%d\n", &width, &height, &depth); err != nil {
		return nil, fmt.Errorf("the picture has an unknown format: %w", err)
	}
	pixels := picture[len(picture)-reader.Len():]
	const most = 1 << 14 // of either side
	if depth != 255 || width <= 0 || height <= 0 || width > most || height > most || len(pixels) < width*height*3 {
		return nil, fmt.Errorf("the picture of %d by %d pixels has %d bytes", width, height, len(pixels))
	}
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		copy(img.Pix[4*i:], pixels[3*i:3*i+3])
		img.Pix[4*i+3] = 0xff
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		return nil, fmt.Errorf("encode the picture: %w", err)
	}
	return out.Bytes(), nil
}
