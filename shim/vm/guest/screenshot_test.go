package guest

import (
	"bytes"
	"image/color"
	"image/png"
	"testing"
)

func TestToPNG(t *testing.T) {
	data, err := toPNG([]byte("P6\n2 1\n255\n\x01\x02\x03\xff\x00\x80"))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for x, want := range []color.RGBA{{1, 2, 3, 255}, {255, 0, 128, 255}} {
		if got := color.RGBAModel.Convert(picture.At(x, 0)); got != want {
			t.Errorf("pixel %d is %v, want %v", x, got, want)
		}
	}
	if again, err := toPNG(data); err != nil || !bytes.Equal(again, data) {
		t.Errorf("a PNG becomes another: %v", err)
	}
	for _, bad := range []string{"", "P6", "P5\n1 1\n255\nabc", "P6\n2 1\n255\nabc", "P6\n-1 -1\n255\nabc", "P6\n65536 65536\n255\nabc", "P6\n1 1\n65535\nabcdef"} {
		if _, err := toPNG([]byte(bad)); err == nil {
			t.Errorf("%q is a picture", bad)
		}
	}
}
