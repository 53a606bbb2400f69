//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
)

// TestFullAtEveryWrite has each call that changes something find the disk full at its first write, then
// at its second, and so on, until it succeeds. Each time it says so, and nothing is lost.
func TestFullAtEveryWrite(t *testing.T) {
	const page = 4 << 10
	for what, step := range map[string]int{"space": page, "inodes": 1} {
		t.Run(what, func(t *testing.T) {
			r := begin(t)
			for at, c := range life {
				if at >= started && at < ending {
					continue // it writes nothing
				}
				room := 0
				for ; !r.onFull(t, c, what, room); room += step {
					if room > 1<<20 {
						t.Fatalf("%s fails with room for %d", c.name, room)
					}
					if at == started-1 { // a start can fail only once
						r.does(t, life[ending], life[ending+1], life[1])
					}
				}
				t.Logf("%s succeeds with room for %d", c.name, room)
				assert.NilError(t, converge(t.Context(), r.isTrue))
			}
			r.container = ""
		})
	}
}

// onFull makes a call on a disk with room for so much, and reports whether it succeeded.
func (r *round) onFull(t *testing.T, c call, what string, room int) bool {
	t.Helper()
	assert.NilError(t, fill(what, room))
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	err := c.do(ctx, r.pod)
	assert.NilError(t, empty())
	if err == nil {
		return true
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("%s with room for %d: %v", c.name, room, err)
	}
	for _, g := range suite.steady {
		assert.NilError(t, g.echoes(), fmt.Sprintf("after %s with room for %d", c.name, room))
	}
	return false
}

// TestFullAtAnyMoment has the shim's folder on a small file system with a journal, which other files
// fill at a random moment of a call.
func TestFullAtAnyMoment(t *testing.T) {
	const size, lives = 48 << 20, 3
	borrowSuite(t)
	small, err := loopfs.New(t.TempDir(), loopfs.Ext4, size)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, small.Close()) })
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	assert.NilError(t, inMounts(func() error { return small.Attach(filepath.Join(suite.Dir(), "nodevirt")) }))
	assert.NilError(t, resume(t.Context(), node.Shim))
	// The first life leaves what containerd keeps.
	var before node.Census
	for i := range uint64(lives) {
		moment := rand.New(rand.NewPCG(*seed, i))
		p, err := newPod(fmt.Sprintf("brim-%d", i), suite.halt, 64<<20)
		assert.NilError(t, err)
		r := &round{plan: plan{calls: life}, pod: p, begun: time.Now()}
		for at, c := range life {
			if at >= started && at < ending {
				continue
			}
			for tries := 0; !r.whileFilled(t, c, time.Duration(moment.Int64N(int64(c.usual)))); tries++ {
				if at == started-1 {
					r.does(t, life[ending], life[ending+1], life[1])
				}
				if tries == 1 { // with room, all goes on
					r.does(t, c)
					break
				}
			}
			assert.NilError(t, converge(t.Context(), r.isTrue))
		}
		assert.NilError(t, removeCgroups(t.Context(), p.config.Linux.CgroupParent, p.container))
		if before == nil {
			before, err = suite.Leftovers(t.Context())
			assert.NilError(t, err)
		}
		assert.NilError(t, converge(t.Context(), asBefore(before)))
	}
}

// whileFilled makes a call, and fills the disk after some time. It reports whether the call succeeded.
func (r *round) whileFilled(t *testing.T, c call, after time.Duration) bool {
	t.Helper()
	assert.NilError(t, fill("space", 1<<20)) // the rest is filled at once
	filled := make(chan error, 1)
	go func() {
		time.Sleep(after)
		filled <- brim()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	err := c.do(ctx, r.pod)
	assert.NilError(t, <-filled)
	assert.NilError(t, empty())
	if err != nil && (status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no space left on device")) {
		t.Errorf("%s on a disk that is full after %s: %v", c.name, after, err)
	}
	t.Logf("%s, full after %s: %v", c.name, after, err)
	return err == nil
}

// brim takes what fill left.
func brim() error {
	f, err := os.Create(filepath.Join(filling(), "brim"))
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return nil
		}
		return err
	}
	defer f.Close()
	for block := make([]byte, 4<<10); err == nil; {
		_, err = f.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}

// inMounts calls do among the node's mounts, on a thread that ends with it.
func inMounts(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread must not run anything else
		mounts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", suite.PID()))
		if err != nil {
			done <- err
			return
		}
		defer mounts.Close()
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- err
			return
		}
		if err := unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}
