package expand

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// room keeps expansions from filling a file system. It counts an expansion with the most that it
// can take; it takes less if data of the disk are zeros.
type room struct {
	reserve int64

	mu       sync.Mutex
	promised map[*os.File]promise // of files that are being written
}

// promise is the space for a file.
type promise struct {
	bytes int64 // the file's final size
	since time.Time
	end   context.CancelCauseFunc // ends the writing
}

// minRate is how many bytes a second are written to a file that keeps its space though others need it.
const minRate = 1 << 20

// errSlow is why an expansion ends.
var errSlow = fmt.Errorf("%w: others need the space that is reserved for it, and it has written less than %s a second for %v: "+
	"raise the processor limit of its pod", syscall.ENOSPC, quantity(minRate), bounds.TurnTime)

// slow reports whether a file's space can be given to others.
func (p promise) slow(f *os.File) bool {
	age := time.Since(p.since)
	return age >= bounds.TurnTime && allocated(f) < minRate*int64(age/time.Second)
}

// promise reserves needs bytes for f, in addition to what is reserved for other files and not written
// yet. Call release when the file is complete or removed. The returned context ends, with the error as its cause, if
// others get the space.
func (r *room) promise(ctx context.Context, f *os.File, needs int64) (_ context.Context, release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err := free(f)
	if err != nil {
		return nil, nil, err
	}
	var others, lendable int64
	var slow []*os.File
	for other, p := range r.promised {
		if !sameFileSystem(f, other) {
			continue
		}
		left := max(0, p.bytes-allocated(other))
		others += left
		if p.slow(other) {
			slow, lendable = append(slow, other), lendable+left
		}
	}
	if lack := needs - (free - others - r.reserve); lack > 0 {
		if lack > lendable {
			return nil, nil, fmt.Errorf("%w: it may take %s; of %s that are free %s are for other disks "+
				"that are being expanded, and %s stay free (disks.reserve): remove what is not needed "+
				"from this file system, or use disk mode file, which copies nothing",
				syscall.ENOSPC, quantity(needs), quantity(free), quantity(others), quantity(r.reserve))
		}
		for _, other := range slow {
			r.promised[other].end(errSlow)
			delete(r.promised, other)
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	r.promised[f] = promise{needs, time.Now(), end}
	return ctx, func() {
		end(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.promised, f)
	}, nil
}

// free returns how many bytes of a file system are free for users other than root.
func free(f *os.File) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("get the free space on the file system of %s: %w", f.Name(), err)
	}
	return int64(st.Bavail) * st.Frsize, nil
}

// allocated returns how many bytes a file takes, and 0 if that is unknown.
func allocated(f *os.File) int64 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

func sameFileSystem(a, b *os.File) bool {
	var sa, sb unix.Stat_t
	return unix.Fstat(int(a.Fd()), &sa) == nil && unix.Fstat(int(b.Fd()), &sb) == nil && sa.Dev == sb.Dev
}

// quantity formats a number of bytes as in config files, with three digits.
func quantity(bytes int64) string {
	unit := int64(1)
	for _, u := range []int64{1 << 10, 1 << 20, 1 << 30, 1 << 40} {
		if bytes >= 10*u {
			unit = u
		}
	}
	return resource.NewQuantity(bytes/unit*unit, resource.BinarySI).String()
}
