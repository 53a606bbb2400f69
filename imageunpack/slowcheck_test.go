package imageunpack_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// slow is a disk whose registry takes its time.
type slow struct {
	io.ReaderAt
	pause time.Duration
}

func (s slow) ReadAt(p []byte, off int64) (int, error) {
	time.Sleep(s.pause)
	return s.ReaderAt.ReadAt(p, off)
}

// TestASlowRegistryDoesNotHoldACheckForLong: others wait for their turn meanwhile.
func TestASlowRegistryDoesNotHoldACheckForLong(t *testing.T) {
	content := string(pattern(mib))
	for name, c := range map[string]struct {
		pause time.Duration
		ends  bool
	}{
		"slow": {time.Second, true}, "too slow": {20 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := imageunpack.Limited(t.Context())
				defer cancel()
				begun := time.Now()
				r := imageunpack.Cancelable(ctx, slow{strings.NewReader(content), c.pause})
				_, _, err := imageunpack.Inspect(r, mib, maxDisk)
				if c.ends != (err == nil) {
					t.Fatalf("got %v", err)
				}
				if took := time.Since(begun); took > imageunpack.CheckTime+c.pause {
					t.Errorf("it took %v", took)
				}
				if !c.ends && (!strings.Contains(err.Error(), "is the image's registry slow") ||
					errors.Is(err, context.Canceled) || errors.Is(err, imageunpack.ErrUnusable)) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
