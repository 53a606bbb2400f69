package domain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// feed writes a saved domain into a named pipe that libvirtd reads.
type feed struct {
	path string
	file *os.File

	mu     sync.Mutex
	memory *memoryReader // nil before the writing begins
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

// newFeed makes the pipe. An older one is removed.
func newFeed(path string) (*feed, error) {
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("make pipe %s: %w", path, err)
	}
	// As a reader, too, so that neither end waits for the other to open the pipe.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &feed{path: path, file: f}, nil
}

// begin begins to write, and returns the pipe's path. If memory cannot be read, the stream ends.
func (f *feed) begin(head []byte, memory io.Reader) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.path
	}
	f.memory = &memoryReader{from: memory}
	f.all.Go(func() {
		_, err := f.file.Write(head)
		if err == nil {
			_, err = io.Copy(f.file, f.memory)
		}
		if err != nil {
			_ = f.file.Close() // QEMU would wait for more; otherwise the pipe stays until QEMU has read all
		}
	})
	return f.path
}

// close ends the stream, removes the pipe, and returns why memory could not be read, if so.
func (f *feed) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		_ = f.file.Close() // it may be closed
		_ = os.Remove(f.path)
	}
	f.all.Wait()
	if f.memory == nil {
		return nil
	}
	return f.memory.err
}
