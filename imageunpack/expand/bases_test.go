package expand_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/test/loopfs"
)

// TestOthersWait: who began to make a base may go, the others get their clones.
func TestOthersWait(t *testing.T) {
	dir := fileSystem(t, loopfs.XFS)
	e := expander(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	path := disk(t, "qcow2", "-c")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ctx := ctx
			if i > 0 {
				ctx = t.Context()
			}
			err := e.Expand(ctx, source(t, path, "qcow2", 1), filepath.Join(dir, fmt.Sprint(i)), silent)
			if i > 0 && err != nil {
				t.Error(err)
			}
		})
	}
	cancel()
	wg.Wait()
	if u := e.Usage(); u.Bases != 1 {
		t.Errorf("usage %+v", u)
	}
	want := sha256.Sum256(content())
	for i := 1; i < 8; i++ {
		if digest(t, filepath.Join(dir, fmt.Sprint(i))) != hex.EncodeToString(want[:]) {
			t.Errorf("clone %d has another content", i)
		}
	}
}

// TestBasesOutliveARestart: those that are whole are used again, and the rest is removed.
func TestBasesOutliveARestart(t *testing.T) {
	dir := fileSystem(t, loopfs.XFS)
	s := source(t, disk(t, "qcow2"), "qcow2", 1)
	e := expander(t, dir)
	assert.NilError(t, e.Expand(t.Context(), s, filepath.Join(dir, "a"), silent))
	e.Close()
	bases := filepath.Join(dir, "bases")
	assert.NilError(t, os.WriteFile(filepath.Join(bases, "sha256-00-00.raw.123.new"), nil, 0o600))
	assert.NilError(t, os.Mkdir(filepath.Join(bases, "folder.raw"), 0o700))
	e = expander(t, dir, func(o *expand.Options) { o.Tool.QemuImg = "false" })
	if names := entries(t, bases); len(names) != 1 || !strings.HasSuffix(names[0], ".raw") {
		t.Errorf("the bases are %q", names)
	}
	assert.NilError(t, e.Expand(t.Context(), s, filepath.Join(dir, "b"), silent))
	if digest(t, filepath.Join(dir, "a")) != digest(t, filepath.Join(dir, "b")) {
		t.Error("clones of before and after differ")
	}
}

// TestLimit: unused bases make room; without any, disks are expanded without.
func TestLimit(t *testing.T) {
	dir := fileSystem(t, loopfs.XFS)
	e := expander(t, dir, func(o *expand.Options) { o.Limit = 14 * mib }) // one of 4, one that may take 8
	path := disk(t, "qcow2")
	file := func(n int) string { return filepath.Join(dir, fmt.Sprint(n)) }
	for n := range 2 {
		assert.NilError(t, e.Expand(t.Context(), source(t, path, "qcow2", n), file(n), silent))
	}
	assert.NilError(t, os.Remove(file(0)))
	assert.NilError(t, e.Expand(t.Context(), source(t, path, "qcow2", 2), file(2), silent))
	if got := strings.Join(images(t, dir), " "); got != image(1)+" "+image(2) {
		t.Errorf("the bases are of %s", got)
	}
	assert.NilError(t, e.Expand(t.Context(), source(t, path, "qcow2", 3), file(3), silent))
	if got := strings.Join(images(t, dir), " "); got != image(1)+" "+image(2) {
		t.Errorf("with all of them held the bases are of %s", got)
	}
	e.Close()
	e = expander(t, dir, func(o *expand.Options) { o.Limit = 14 * mib })
	e.Hold(expand.Key{Image: image(1), Path: "/disk/a.qcow2"}, file(1))
	assert.NilError(t, e.Expand(t.Context(), source(t, path, "qcow2", 4), file(4), silent))
	if got := strings.Join(images(t, dir), " "); got != image(1)+" "+image(4) {
		t.Errorf("after a restart the bases are of %s", got)
	}
}

func TestCollect(t *testing.T) {
	dir := fileSystem(t, loopfs.XFS)
	e := expander(t, dir)
	path := disk(t, "qcow2")
	for n := range 3 {
		assert.NilError(t, e.Expand(t.Context(), source(t, path, "qcow2", n), filepath.Join(dir, fmt.Sprint(n)), silent))
	}
	before := digest(t, filepath.Join(dir, "1"))
	away := errors.New("away")
	err := e.Collect(func(id string) (bool, error) {
		if id == image(2) {
			return false, away
		}
		return id == image(0), nil
	})
	if !errors.Is(err, away) {
		t.Errorf("an image that could not be asked for: %v", err)
	}
	if got := strings.Join(images(t, dir), " "); got != image(0)+" "+image(2) {
		t.Errorf("the bases are of %s", got)
	}
	if digest(t, filepath.Join(dir, "1")) != before {
		t.Error("the clone has changed")
	}
}

// images are those of which there are bases.
func images(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	for _, name := range entries(t, filepath.Join(dir, "bases")) {
		parts := strings.Split(name, "-")
		all = append(all, parts[0]+":"+parts[1])
	}
	return all
}
