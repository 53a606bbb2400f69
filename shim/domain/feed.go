package domain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// pipeSize is how many bytes a pipe holds, firstSize how many bytes of the memory every reader gets.
	// A reader for whom all of these could be written has read more than the head.
	pipeSize  = 64 << 10
	firstSize = pipeSize + 1
)

// feed writes a saved domain into named pipes that libvirtd reads.
//
// A process that opens the path reads the saved domain from its start, as from a file: once a reader has
// opened a pipe, the next pipe replaces it at the path, before the reader gets anything. This exists because
// libvirt 11 opens the path twice: it reads the head and closes the pipe, and opens the path again for QEMU.
// The first reader that reads more than the head is QEMU, and the last one.
type feed struct {
	path string

	mu     sync.Mutex
	memory *memoryReader // nil before the writing begins
	at     *os.File      // names the pipe at the path; it has neither of the pipe's ends
	pipe   *os.File      // the last one that a reader opened; nil before that
	err    error         // why there is no other pipe
	closed bool
	all    sync.WaitGroup
}

// memoryReader is a reader that keeps its error.
type memoryReader struct {
	from io.Reader
	err  error
}

func (s *memoryReader) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// newFeed makes the first pipe. An older one is removed.
func newFeed(path string) (*feed, error) {
	at, err := makePipe(path)
	if err != nil {
		return nil, err
	}
	return &feed{path: path, at: at}, nil
}

// makePipe makes a pipe, which replaces what is at the path, and returns a file that names it.
func makePipe(path string) (*os.File, error) {
	next := path + ".next"
	if err := os.RemoveAll(next); err != nil {
		return nil, err
	}
	if err := unix.Mkfifo(next, 0o600); err != nil {
		return nil, fmt.Errorf("make pipe %s: %w", next, err)
	}
	named, err := os.OpenFile(next, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(next, path); err != nil {
		return nil, errors.Join(err, named.Close())
	}
	return named, nil
}

// openPipe opens a pipe that a file names, wherever it is by now.
func openPipe(named *os.File, flag int) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", named.Fd()), flag, 0)
}

// begin begins to write, and returns the pipes' path. If memory cannot be read, the stream ends.
func (f *feed) begin(head []byte, memory io.Reader) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.memory = &memoryReader{from: memory}
		f.all.Go(func() { f.serve(head, f.memory) })
	}
	return f.path
}

// serve writes to one reader after another, up to the one that reads more than the head.
func (f *feed) serve(head []byte, memory io.Reader) {
	first := make([]byte, firstSize)
	n, ended := io.ReadFull(memory, first)
	start := slices.Concat(head, first[:n])
	for last := false; !last; {
		pipe, err := f.next()
		if err != nil {
			return
		}
		_, err = pipe.Write(start)
		last = err == nil && ended == nil
		if last {
			_, _ = io.Copy(pipe, memory) // memory keeps its error; a reader that has left is not one
		}
		_ = pipe.Close() // close may have done so
	}
}

// next waits for a reader at the path, and returns the pipe that it has opened. Another pipe is at the path
// then. After close, the error is [os.ErrClosed].
func (f *feed) next() (*os.File, error) {
	pipe, err := openPipe(f.at, os.O_WRONLY) // close leaves it open until this has returned
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		err = errors.Join(err, os.ErrClosed)
	} else {
		if err == nil {
			err = f.replace(pipe)
		}
		f.err = err
	}
	if err != nil && pipe != nil {
		_ = pipe.Close() // the reader notices that it ends
	}
	return pipe, err
}

// replace puts another pipe in the place of one that a reader has opened.
func (f *feed) replace(pipe *os.File) error {
	if err := limit(pipe); err != nil {
		return err
	}
	at, err := makePipe(f.path)
	if err != nil {
		return err
	}
	_ = f.at.Close() // nothing is written to it
	f.at, f.pipe = at, pipe
	return nil
}

// limit sets how many bytes a pipe holds.
func limit(pipe *os.File) error {
	conn, err := pipe.SyscallConn() // Fd would have writes block beyond a close
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { _, failed = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	return errors.Join(err, failed)
}

// close ends the stream, removes the pipes, and returns why they were missing or why memory could not be
// read, if so.
func (f *feed) close() error {
	if both := f.end(); both != nil {
		defer both.Close()
	}
	f.all.Wait()
	_ = f.at.Close() // by the first close
	if f.memory == nil {
		return f.err
	}
	return errors.Join(f.err, f.memory.err)
}

// end ends the stream and removes the pipe at the path. The file that it returns, if any, has both ends of
// that pipe: what waits for the other end, next or libvirtd, waits no more.
func (f *feed) end() *os.File {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	both, err := openPipe(f.at, os.O_RDWR|unix.O_NONBLOCK)
	f.err = errors.Join(f.err, err)
	_ = os.Remove(f.path)
	if f.pipe != nil {
		_ = f.pipe.Close() // it may be closed
	}
	return both
}
