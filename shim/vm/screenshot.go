package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
)

// screenshot is a control: a picture of the machine's display, as PNG.
func (m *Manager) screenshot(ctx context.Context, c *machine) ([]byte, error) {
	r := c.record()
	if !r.Spec.Display {
		return nil, errors.New("the machine has no display")
	}
	ctx, cancel := atMost(ctx, patience)
	defer cancel()
	picture, err := m.Driver.Screenshot(ctx, r.Domain.UUID)
	if err != nil {
		return nil, err
	}
	return toPNG(picture)
}

// toPNG is a picture of QEMU's: PNG already, or a portable pixmap (ppm(5)) of 8 bits a colour.
func toPNG(picture []byte) ([]byte, error) {
	if bytes.HasPrefix(picture, []byte("\x89PNG\r\n\x1a\n")) {
		return picture, nil
	}
	var width, height, depth int
	reader := bytes.NewReader(picture)
	if _, err := fmt.Fscanf(reader, "P6\n%d %d\n%d\n", &width, &height, &depth); err != nil {
		return nil, fmt.Errorf("the picture is of no known kind: %w", err)
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
