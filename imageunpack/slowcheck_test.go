package imageunpack_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
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

// pieces is a disk of a lazy image: the first read in each piece takes a second, unless it is quick.
type pieces struct {
	io.ReaderAt
	quick bool
	mu    sync.Mutex
	has   map[int64]bool
}

func (p *pieces) ReadAt(b []byte, off int64) (int, error) {
	p.mu.Lock()
	had := p.has[off/mib]
	p.has[off/mib] = true
	p.mu.Unlock()
	if !had && !p.quick {
		time.Sleep(time.Second)
	}
	return p.ReaderAt.ReadAt(b, off)
}

// TestTablesAreFetchedAtOnce: a large disk's tables are apart from each other.
func TestTablesAreFetchedAtOnce(t *testing.T) {
	content := qcow2File(t, pattern(40*mib), "-o", "cluster_size=4096") // each table has its place before 2 MiB
	synctest.Test(t, func(t *testing.T) {
		r := &pieces{ReaderAt: bytes.NewReader(content), has: map[int64]bool{}}
		begun := time.Now()
		d, _, err := imageunpack.Inspect(r, int64(len(content)), maxDisk)
		if err != nil {
			t.Fatalf("%v: %v", d, err)
		}
		if took := time.Since(begun); len(r.has) < 20 || took > 5*time.Second {
			t.Errorf("%d pieces took %v", len(r.has), took)
		}
	})
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
