package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/console"
)

const (
	// history is how much past output a client gets, in bytes.
	history = 64 << 10
	// chunk is the size of reads and writes, in bytes.
	chunk = 32 << 10

	// The pauses between two reads of a file: short after output, longer while the guest is silent.
	shortPause = 5 * time.Millisecond
	longPause  = 100 * time.Millisecond
)

// view is one client's offset in a guest's output.
type view struct {
	file *os.File
	at   int64
	buf  [chunk]byte
}

// openView opens a view at the start of history, or at the end if it is live. It refuses anything but a regular
// file, since QEMU's user, which is not trusted, could replace the file.
func openView(path string, live bool) (*view, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	v := &view{file: f}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a %v, want a regular file", path, info.Mode().Type())
	}
	switch {
	case err != nil:
	case live:
		v.at = info.Size()
	default:
		err = v.rewind(info.Size())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return v, nil
}

func (v *view) close() { v.file.Close() }

// rewind seeks to the first complete line of history.
func (v *view) rewind(size int64) error {
	v.at = max(size-history, 0)
	if v.at == 0 {
		return nil
	}
	// If the space there was freed, the file has a hole.
	if at, err := unix.Seek(int(v.file.Fd()), v.at, unix.SEEK_DATA); err == nil {
		v.at = at
	}
	n, err := v.read()
	if err != nil {
		return err
	}
	if i := bytes.IndexByte(v.buf[:n], '\n'); i >= 0 {
		v.at += int64(i) + 1
	}
	return nil
}

func (v *view) read() (int, error) {
	n, err := v.file.ReadAt(v.buf[:], v.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read the console's file: %w", err)
	}
	return n, nil
}

// show writes to out until the VM has ended and all is written, ctx is done or out fails.
func (v *view) show(ctx context.Context, ended, typed <-chan struct{}, out io.Writer) error {
	last, pause := false, shortPause
	for ctx.Err() == nil {
		n, err := v.read()
		if err != nil {
			return err
		}
		size, err := v.size() // of a moment when what was read was there, or later
		switch {
		case err != nil:
		case size < v.at: // another process has emptied it
			v.at = 0
		case size-v.at > console.Kept: // what was read may have been released
			err = v.skip(size, out)
			pause = shortPause
		case n > 0:
			_, err = out.Write(v.buf[:n])
			v.at += int64(n)
			pause = shortPause
		case last:
			return nil
		default:
			last, pause = wait(ctx, ended, typed, pause)
		}
		if err != nil && ctx.Err() == nil { // not that the client has left
			return fmt.Errorf("write the guest's output: %w", err)
		}
	}
	return nil
}

// wait pauses before the next read. last reports that the VM has ended, so that the
// next read is the last one.
func wait(ctx context.Context, ended, typed <-chan struct{}, pause time.Duration) (last bool, next time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ended:
		return true, pause
	case <-typed:
		return false, shortPause
	case <-t.C:
		return false, min(2*pause, longPause)
	case <-ctx.Done():
		return false, pause
	}
}

func (v *view) size() (int64, error) {
	info, err := v.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("size of the console's file: %w", err)
	}
	return info.Size(), nil
}

// skip continues at the start of history if the client is too slow, and says so in its output.
func (v *view) skip(size int64, out io.Writer) error {
	from := v.at
	if err := v.rewind(size); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\r\n[nodevirt: %d bytes of console output skipped: they came faster than they were read]\r\n",
		v.at-from)
	return err
}
