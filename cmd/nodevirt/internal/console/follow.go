package console

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const pollTime = 100 * time.Millisecond

// Follow writes the messages of a VM's log to out, until ended is closed and all is
// written, or ctx ends. It follows the log across rotations.
func Follow(ctx context.Context, path string, ended <-chan struct{}, out io.Writer) error {
	l, err := openLog(path)
	if err != nil {
		return err
	}
	defer func() { _ = l.file.Close() }()
	for last := false; ; {
		if err := l.copy(out); err != nil {
			return err
		}
		next, err := l.next(path)
		if err != nil {
			return err
		}
		if next != nil {
			// The old log is complete: the shim creates the new one after it has
			// closed the old one.
			err := l.copy(out)
			_ = l.file.Close()
			if l = next; err != nil {
				return err
			}
			continue
		}
		if last {
			return nil
		}
		select {
		case <-ended:
			last = true // one more look: the end may have come between
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollTime):
		}
	}
}

// log is a log that is being read.
type log struct {
	file *os.File
	in   *bufio.Reader
	part []byte // of a line that is not written to its end yet
}

func openLog(path string) (*log, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the VM's log: %w", err)
	}
	return &log{file: f, in: bufio.NewReader(f)}, nil
}

// copy writes what has come.
func (l *log) copy(out io.Writer) error {
	for {
		text, err := l.in.ReadBytes('\n')
		l.part = append(l.part, text...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the VM's log: %w", err)
		}
		if _, err := out.Write(message(l.part)); err != nil {
			return err
		}
		l.part = l.part[:0]
	}
}

// next returns the log that has replaced this one at path, or nil.
func (l *log) next(path string) (*log, error) {
	here, err := l.file.Stat()
	if err != nil {
		return nil, fmt.Errorf("look for the VM's log: %w", err)
	}
	there, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && os.SameFile(here, there) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the VM's log: %w", err)
	}
	next, err := openLog(path)
	if errors.Is(err, os.ErrNotExist) { // rotated again
		return nil, nil
	}
	return next, err
}

// message returns the message of a line "TIME STREAM TAG MESSAGE" of a CRI log. The
// tag P means that the next line continues it.
func message(line []byte) []byte {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) < 4 {
		return line
	}
	if string(fields[2]) == "P" {
		return bytes.TrimSuffix(fields[3], []byte("\n"))
	}
	return fields[3]
}
