package hooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxFiles bounds the files in a sidecar's folder among which its socket is searched for.
const maxFiles = 64

// connect connects to the first socket, by name, in a sidecar's folder. The sidecar writes
// to that folder: a link there leads nowhere, whether it takes the place of the folder or
// of the socket, and whatever is replaced meanwhile.
func connect(ctx context.Context, folder, sidecar string) (net.Conn, error) {
	parent, err := openIn(unix.AT_FDCWD, folder, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	dir, err := openIn(int(parent.Fd()), sidecar, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	files, _ := dir.Readdirnames(maxFiles) // an error leaves it empty
	slices.Sort(files)
	for _, name := range files {
		file, err := openIn(int(dir.Fd()), name, unix.O_PATH)
		if err != nil {
			continue
		}
		conn, err := connectTo(ctx, file)
		file.Close()
		if !errors.Is(err, errNoSocket) {
			return conn, err
		}
	}
	return nil, fmt.Errorf("%s: %w", filepath.Join(folder, sidecar), errNoSocket)
}

var errNoSocket = errors.New("no socket is there")

// openIn opens a file in a folder, and follows no link to it.
func openIn(dir int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// connectTo connects to the socket that a descriptor refers to, through the kernel's link
// to exactly that file.
func connectTo(ctx context.Context, file *os.File) (net.Conn, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return nil, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errNoSocket
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(file.Fd()))))
}
