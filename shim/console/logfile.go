package console

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// logFile is a log in the CRI format, at the container's log_path.
type logFile struct{ file *os.File }

// logEnd is the end of a log, in bytes. The inode identifies the log, which may
// have been replaced since.
type logEnd struct {
	inode uint64
	size  int64
}

// openLog opens the log for appending, and creates it and its parents if they are
// missing. It does not follow a link in the last component: a pod that mounts the
// log folder could point it at a file of the node.
func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of container log: %w", err)
	}
	const flags = os.O_WRONLY | os.O_APPEND | os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK
	file, err := os.OpenFile(path, flags, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open container log: %w", err)
	}
	return &logFile{file}, nil
}

// end returns the end of the log.
func (l *logFile) end() (logEnd, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &st); err != nil {
		return logEnd{}, fmt.Errorf("size of container log: %w", err)
	}
	return logEnd{inode: st.Ino, size: st.Size}, nil
}

// cut truncates the log to an end. It does nothing if the end is that of another log.
func (l *logFile) cut(known logEnd) error {
	end, err := l.end()
	if err != nil || end.inode != known.inode || end.size <= known.size {
		return err
	}
	if err := l.file.Truncate(known.size); err != nil {
		return fmt.Errorf("truncate the container log: %w", err)
	}
	return nil
}

// append writes all records or none: after an error, for example because the disk
// is full, it truncates the log, since the next attempt writes all of them again.
func (l *logFile) append(records []byte) (logEnd, error) {
	before, err := l.end()
	if err != nil {
		return before, err
	}
	if _, err := l.file.Write(records); err != nil {
		return before, errors.Join(fmt.Errorf("write container log: %w", err), l.cut(before))
	}
	return l.end()
}

// setAside renames the log, and replaces the one set aside before. It does nothing
// if path is another file already, since the kubelet then is about to request a reopen.
func (l *logFile) setAside(path string) error {
	here, err := l.file.Stat()
	if err != nil {
		return fmt.Errorf("set the container log aside: %w", err)
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(here, there) {
		return nil
	}
	if err == nil {
		err = os.Rename(path, path+asideSuffix)
	}
	if err != nil {
		return fmt.Errorf("set the container log aside: %w", err)
	}
	return nil
}

func (l *logFile) close() error { return l.file.Close() }
