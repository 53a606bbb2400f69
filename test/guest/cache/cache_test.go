package cache_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest/cache"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func TestBuildsOnce(t *testing.T) {
	root := filepath.Join(t.TempDir(), "made", "as", "needed")
	var builds atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			dir, err := cache.Dir(t.Context(), root, "thing", "k1", func(tmp string) error {
				builds.Add(1)
				return os.WriteFile(filepath.Join(tmp, "file"), []byte("content"), 0o644)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "content" {
				t.Errorf("the folder holds %q, %v", data, err)
			}
		})
	}
	group.Wait()
	if builds.Load() != 1 {
		t.Errorf("built %d times", builds.Load())
	}
	if got := names(t, root); len(got) != 2 { // the lock and the folder
		t.Errorf("left %q", got)
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	root, bad := t.TempDir(), errors.New("bad")
	_, err := cache.Dir(t.Context(), root, "thing", "k1", func(tmp string) error {
		return errors.Join(bad, os.WriteFile(filepath.Join(tmp, "half"), nil, 0o644))
	})
	if !errors.Is(err, bad) {
		t.Errorf("error %v", err)
	}
	if got := names(t, root); len(got) != 1 || got[0] != ".thing.lock" {
		t.Errorf("left %q", got)
	}
}

func TestRemovesUnused(t *testing.T) {
	root := t.TempDir()
	long := time.Now().Add(-365 * 24 * time.Hour)
	for name, used := range map[string]time.Time{
		".thing.tmp-1": time.Now(), "thing-old": long, "thing-recent": time.Now(), "other-old": long, "thingy-old": long,
	} {
		assert.NilError(t, os.Mkdir(filepath.Join(root, name), 0o755))
		assert.NilError(t, os.Chtimes(filepath.Join(root, name), used, used))
	}
	if _, err := cache.Dir(t.Context(), root, "thing", "new", func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	want := []string{".thing.lock", "other-old", "thing-new", "thing-recent", "thingy-old"}
	got := names(t, root)
	if len(got) != len(want) {
		t.Fatalf("%q instead of %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}

func TestLockHonoursContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := cache.Lock(t.Context(), path)
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cache.Lock(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	unlock()
	unlock, err = cache.Lock(t.Context(), path)
	assert.NilError(t, err)
	unlock()
}

func TestKeySeparatesInputs(t *testing.T) {
	if cache.Key("ab", "c") == cache.Key("a", "bc") || cache.Key("a") == cache.Key("a", "") {
		t.Error("different inputs have one key")
	}
	if again := cache.Key("a", "b"); again != cache.Key("a", "b") {
		t.Error("equal inputs have different keys")
	}
}
