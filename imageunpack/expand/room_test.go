package expand

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// TestSlowPromises: a file to which hardly anything is written, as by a VM without processor time, keeps the space that is
// reserved for it until another needs it.
func TestSlowPromises(t *testing.T) {
	dir := t.TempDir()
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	slowFile, fastFile, third := create("slow"), create("fast"), create("third")
	if _, err := fastFile.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	most, err := free(slowFile)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := &room{reserve: most - 1<<30, promised: map[*os.File]promise{}}
		promise := func(f *os.File, needs int64) (context.Context, error) {
			ctx, _, err := r.promise(t.Context(), f, needs)
			return ctx, err
		}
		slow, err := promise(slowFile, 800<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := promise(third, 500<<20); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("promised twice: %v", err)
		}
		time.Sleep(bounds.TurnTime)
		if _, err := promise(third, 2<<30); !errors.Is(err, syscall.ENOSPC) || slow.Err() != nil {
			t.Errorf("more than there is: %v, and the slow one: %v", err, slow.Err())
		}
		fast, err := promise(fastFile, 100<<20)
		if err != nil || slow.Err() != nil {
			t.Fatalf("what fits beside the slow one: %v, %v", err, slow.Err())
		}
		if _, err := promise(third, 500<<20); err != nil {
			t.Errorf("the space of a slow one: %v", err)
		}
		if err := context.Cause(slow); !errors.Is(err, errSlow) || fast.Err() != nil {
			t.Errorf("the slow one: %v, the other one: %v", err, fast.Err())
		}
	})
}
