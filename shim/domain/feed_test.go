package domain

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// startFeed feeds memory after a head, until the test ends.
func startFeed(t *testing.T, head, memory string) (f *feed, path string) {
	t.Helper()
	f, err := newFeed(filepath.Join(t.TempDir(), "memory"))
	assert.NilError(t, err)
	t.Cleanup(func() { _ = f.close() })
	return f, f.begin([]byte(head), bytes.NewReader([]byte(memory)))
}

// readPart opens the path, reads so many bytes, and leaves.
func readPart(t *testing.T, path string, bytes int) string {
	t.Helper()
	r, err := os.Open(path)
	assert.NilError(t, err)
	defer r.Close()
	data := make([]byte, bytes)
	_, err = io.ReadFull(r, data)
	assert.NilError(t, err)
	return string(data)
}

// TestFeed: each reader gets all, whatever those before it have read.
func TestFeed(t *testing.T) {
	const head = "the head"
	long := string(bytes.Repeat([]byte("memory, "), 1<<18))
	for name, memory := range map[string]string{
		"long": long, "short": "memory", "none": "",
		"as a pipe": long[:pipeSize], "as the start": long[:firstSize], "just longer": long[:firstSize+1],
	} {
		for before := range 3 {
			f, path := startFeed(t, head, memory)
			for range before {
				assert.Equal(t, readPart(t, path, len(head)), head, name)
			}
			all, err := os.ReadFile(path)
			assert.NilError(t, err, name)
			if string(all) != head+memory {
				t.Errorf("%s, after %d readers of the head: %d bytes, want %d", name, before, len(all), len(head+memory))
			}
			assert.NilError(t, f.close(), name)
			if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
				t.Errorf("%s: what is left: %v, %v", name, left, err)
			}
		}
	}
}

// TestFeedOfDamagedMemory: the reader gets what can be read, and close returns why it is not more.
func TestFeedOfDamagedMemory(t *testing.T) {
	damaged := errors.New("damaged")
	for _, size := range []int{0, 10, firstSize, firstSize + 1, 1 << 20} {
		f, err := newFeed(filepath.Join(t.TempDir(), "memory"))
		assert.NilError(t, err)
		path := f.begin([]byte("head"), io.MultiReader(bytes.NewReader(make([]byte, size)), failing{damaged}))
		assert.Equal(t, readPart(t, path, 4), "head")
		all, err := os.ReadFile(path)
		assert.NilError(t, err)
		assert.Equal(t, len(all), 4+size)
		assert.ErrorIs(t, f.close(), damaged)
		assert.ErrorIs(t, f.close(), damaged)
	}
}

// TestCloseOfAFeed: close returns, whatever the feed waits for, and no reader goes on to wait.
func TestCloseOfAFeed(t *testing.T) {
	memory := string(make([]byte, 1<<20))
	for name, use := range map[string]func(path string){
		"no reader yet": func(string) {},
		"a read head":   func(path string) { readPart(t, path, 4) },
		"a read start":  func(path string) { readPart(t, path, pipeSize*2) },
		"a slow reader": func(path string) { openFile(t, path, os.O_RDONLY) },
		"no folder":     func(path string) { assert.NilError(t, os.RemoveAll(filepath.Dir(path))) },
	} {
		f, path := startFeed(t, "head", memory)
		use(path)
		ended := make(chan error, 2)
		go func() { _, err := os.ReadFile(path); ended <- ignoreMissing(err) }()
		go func() { ended <- f.close() }()
		for range 2 {
			select {
			case err := <-ended:
				assert.NilError(t, ignoreMissing(err), name)
			case <-time.After(time.Minute):
				t.Fatal(name, "the feed does not end")
			}
		}
	}

	f, err := newFeed(filepath.Join(t.TempDir(), "memory"))
	assert.NilError(t, err)
	assert.NilError(t, f.close())
	_, err = os.Open(f.begin(nil, bytes.NewReader(nil)))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// TestFeedWithoutAFolder: without a folder there is no pipe.
func TestFeedWithoutAFolder(t *testing.T) {
	f, err := newFeed(filepath.Join(t.TempDir(), "none", "memory"))
	if f != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", f, err)
	}
}
