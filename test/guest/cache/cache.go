// Package cache keeps things that take long to build in folders named by what went into them.
//
// It owns the locking, the atomic rename and the removal of folders that were not used for a while.
// The caller decides what is built, and which inputs make the key.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unusedFor is how long a folder of an older key outlives its last use.
const unusedFor = 14 * 24 * time.Hour

// Key makes a short key of all inputs of a build. Inputs are separated, so that moving bytes from
// one to its neighbour gives another key.
func Key(inputs ...string) string {
	h := sha256.New()
	for _, in := range inputs {
		fmt.Fprintf(h, "%d:%s", len(in), in)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Dir returns the folder root/name-key. If there is none, build fills a temporary folder on the
// same file system, which is then renamed; so a folder that is there is complete. Two processes
// that want the same name take turns. A key has no dash.
func Dir(ctx context.Context, root, name, key string, build func(tmp string) error) (string, error) {
	dir := filepath.Join(root, name+"-"+key)
	if touch(dir) == nil {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	unlock, err := Lock(ctx, filepath.Join(root, "."+name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if touch(dir) == nil { // another process built it while this one waited
		return dir, nil
	}
	prune(root, name)
	tmp, err := os.MkdirTemp(root, "."+name+".tmp-")
	if err != nil {
		return "", fmt.Errorf("make a folder to build %s in: %w", name, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // after the rename there is nothing left to remove
	if err := build(tmp); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", fmt.Errorf("open %s to readers: %w", tmp, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", fmt.Errorf("put %s in the cache: %w", name, err)
	}
	return dir, nil
}

// Lock takes an exclusive lock on a file, which it makes if needed, and returns its release. The
// kernel releases it too when the process ends. It waits until ctx is done.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for lock %s: %w", path, ctx.Err()), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// touch marks a folder as used now; it fails if the folder is not there.
func touch(dir string) error {
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// prune removes what a killed build left, and folders of older keys that were not used for long. It
// runs under the lock of name, so no build of that name is under way. What can't be removed stays.
func prune(root, name string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+name+".tmp-") || outdated(e, name) {
			_ = os.RemoveAll(filepath.Join(root, e.Name()))
		}
	}
}

func outdated(e fs.DirEntry, name string) bool {
	key, ok := strings.CutPrefix(e.Name(), name+"-")
	if !ok || !e.IsDir() || strings.Contains(key, "-") { // with a dash it is of a longer name
		return false
	}
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()) > unusedFor
}
