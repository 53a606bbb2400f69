package guest

import (
	"bytes"
	"context"
	"image/color"
	"image/png"
	"testing"
	"testing/synctest"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
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

// slowScreens make a picture once they are released.
type slowScreens struct {
	release       chan struct{}
	running, most int
}

func (s *slowScreens) Screenshot(context.Context, string) ([]byte, error) {
	s.running++
	s.most = max(s.most, s.running)
	<-s.release
	s.running--
	return []byte("P6\n1 1\n255\nabc"), nil
}

// TestScreenshotsTakeTurns: users who ask for many pictures of many VMs have one at a time, and leave the other to another
// namespace.
func TestScreenshotsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowScreens{release: make(chan struct{})}
		take := screenshot(slow)
		shown := func(id, namespace string) *table.VM {
			v := &table.VM{}
			r := record.Container{ID: id}
			r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Namespace: namespace}}
			r.Spec.Display = true
			v.Publish(r)
			return v
		}
		const many = 20
		ended := make(chan error, many+1)
		for range many {
			go func() {
				_, err := take(t.Context(), shown("a", "greedy"))
				ended <- err
			}()
		}
		synctest.Wait()
		if slow.running != NamespaceScreenshots {
			t.Errorf("%d pictures of one namespace are made", slow.running)
		}
		go func() {
			_, err := take(t.Context(), shown("b", "neighbour"))
			ended <- err
		}()
		synctest.Wait()
		if slow.running != MaxScreenshots {
			t.Errorf("%d pictures are made, with that of a neighbour", slow.running)
		}
		close(slow.release)
		for range many + 1 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if slow.most != MaxScreenshots {
			t.Errorf("%d pictures were made at once", slow.most)
		}
	})
}
