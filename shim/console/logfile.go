package console

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// logFile is a log in the CRI format, as the kubelet knows it by the container's log_path.
type logFile struct{ file *os.File }

// openLog opens the log for appending, and makes it and its parents where they are missing. The
// last component is not followed as a link: a pod that has the log folder mounted could point it at
// a file of the host.
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

// append writes records, all or none: a part of them that went in before an error, as when the disk
// runs full, is taken back, since the next try writes all of them again.
func (l *logFile) append(records []byte) error {
	n, err := l.file.Write(records)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("write container log: %w", err)
	if n == 0 {
		return err
	}
	info, statErr := l.file.Stat()
	if statErr != nil {
		return fmt.Errorf("%w; and can't take a partial record back: %w", err, statErr)
	}
	if cutErr := l.file.Truncate(info.Size() - int64(n)); cutErr != nil {
		return fmt.Errorf("%w; and can't take a partial record back: %w", err, cutErr)
	}
	return err
}

func (l *logFile) close() error { return l.file.Close() }
