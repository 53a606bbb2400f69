// Package hold stops a caller of a tool right before it runs, for tests of what
// happens meanwhile.
//
// It owns the program that stands for the tool; the tool itself is the real one.
package hold

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Program writes a program into dir that runs a tool, but waits first while it is
// held, and returns its path.
func Program(dir, tool string) (path string, err error) {
	real, err := exec.LookPath(tool)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(tool))
	script := fmt.Sprintf("#!/bin/sh\n[ -p %[1]s.hold ] && read -r _ <%[1]s.hold\nexec %[2]s \"$@\"\n", path, real)
	return path, os.WriteFile(path, []byte(script), 0o755)
}

// Held makes a call, and returns when a program of [Program] waits in it. Release
// lets it go on; done gets what the call answers.
func Held(t *testing.T, program string, call func() error) (release func(), done <-chan error) {
	t.Helper()
	return HeldAt(t, program, 1, call)
}

// HeldAt is Held for the program's run of a number, from 1, in the call.
func HeldAt(t *testing.T, program string, run int, call func() error) (release func(), done <-chan error) {
	t.Helper()
	fifo := program + ".hold"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { answer <- call() }()
	for {
		f, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
		switch {
		case err == nil && run == 1:
			return func() { _, _ = os.Remove(fifo), f.Close() }, answer
		case err == nil:
			run--
			// The next run finds a new fifo, before this one goes on.
			err = errors.Join(os.Remove(fifo), unix.Mkfifo(fifo, 0o600), f.Close())
		}
		if err != nil && !errors.Is(err, unix.ENXIO) { // no reader yet
			_ = os.Remove(fifo)
			t.Fatal(err)
		}
		select {
		case err := <-answer:
			_ = os.Remove(fifo)
			t.Fatalf("the call ended before it came to %s: %v", program, err)
		case <-time.After(time.Millisecond):
		}
	}
}
