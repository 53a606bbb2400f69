package expand

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
)

// room keeps expansions from filling a file system. It counts an expansion with the most that it
// can take; it takes less if data of the disk are zeros.
type room struct {
	reserve int64

	mu       sync.Mutex
	promised map[*os.File]int64 // the final sizes of files that are being written
}

// promise reserves needs bytes for f, in addition to what is reserved for other files and not written
// yet. Call release when the file is complete or removed.
func (r *room) promise(f *os.File, needs int64) (release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err := free(f)
	if err != nil {
		return nil, err
	}
	var others int64
	for other, bytes := range r.promised {
		if sameFileSystem(f, other) {
			others += max(0, bytes-allocated(other))
		}
	}
	if needs > free-others-r.reserve {
		return nil, fmt.Errorf("%w: it may take %s; of %s that are free %s are for other disks "+
			"that are being expanded, and %s stay free (disks.reserve): remove what is not needed "+
			"from this file system, or use disk mode file, which copies nothing",
			syscall.ENOSPC, quantity(needs), quantity(free), quantity(others), quantity(r.reserve))
	}
	r.promised[f] = needs
	return func() {
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
