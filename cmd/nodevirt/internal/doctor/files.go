package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/config"
)

// checkUIDs looks for accounts with user or group ids in the range of the VMs. VMs
// start nevertheless, but such an account could read their memory and disks.
func checkUIDs(_ context.Context, c config.Config) Finding {
	first, last := uint64(c.VM.UIDBase), uint64(c.VM.UIDBase)+uint64(c.VM.UIDCount)-1
	var taken []string
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid"} {
		found, err := overlaps(path, first, last)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return warn("make the file readable", "%v", err)
		}
		taken = append(taken, found...)
	}
	if len(taken) > 0 {
		return warn("set vm.uid_base in the shim's config to the start of an unused range",
			"%d to %d are for VMs alone, but overlap with %s", first, last, strings.Join(taken, ", "))
	}
	return ok("no account has ids from %d to %d, the VMs' own", first, last)
}

// overlaps returns the names in a file like /etc/passwd (NAME:x:ID) or like
// /etc/subuid (NAME:FIRST:COUNT) that have ids between first and last.
func overlaps(path string, first, last uint64) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ranges := strings.HasPrefix(filepath.Base(path), "sub")
	var found []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 3 {
			continue
		}
		id, count := fields[2], "1"
		if ranges {
			id, count = fields[1], fields[2]
		}
		from, err1 := strconv.ParseUint(id, 10, 64)
		n, err2 := strconv.ParseUint(count, 10, 64)
		if err1 != nil || err2 != nil || n == 0 {
			continue
		}
		if from <= last && from+n-1 >= first {
			found = append(found, fmt.Sprintf("%s in %s", fields[0], path))
		}
	}
	return found, lines.Err()
}

// lowSpace is about what a few guests write.
const lowSpace = 5 << 30

// checkRootFolder examines the file system of the VMs' disks.
func checkRootFolder(_ context.Context, c config.Config) Finding {
	dir, err := existing(c.Root)
	if err != nil {
		return fail("create the folder, or set root in the shim's config", "%v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fail("set root in the shim's config to a folder of a local file system", "%s: %v", dir, err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free == 0 || st.Files > 0 && st.Ffree == 0 {
		return fail("free space, or set root in the shim's config to another file system", "%s: the file system is full", c.Root)
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		return warn("set root in the shim's config to a folder of a disk", "%s is in memory: guests' writes and the VMs' records are lost with the node's next boot", c.Root)
	}
	switch err := punch(dir); {
	case errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return fail("make the folder writable for root, or set root in the shim's config to another file system", "%s: %v", dir, err)
	case err != nil:
		return warn("use ext4, xfs or btrfs: there space that guests free returns to the node",
			"%s: %s free, but the file system does not punch holes into files: %v", c.Root, cli.Bytes(free), err)
	case free < lowSpace:
		return warn("free space: guests' writes go there", "%s: only %s free", c.Root, cli.Bytes(free))
	}
	return ok("%s: %s free, files can have holes", c.Root, cli.Bytes(free))
}

// existing returns the folder, or its nearest ancestor that exists.
func existing(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a folder", dir)
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

// punch makes a hole in a file that has no name, and so leaves no trace.
func punch(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create a file: %w", err)
	}
	defer unix.Close(fd)
	const size = 64 << 10
	if _, err := unix.Write(fd, make([]byte, size)); err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size)
}
