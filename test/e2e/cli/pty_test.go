package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// screen is a nodevirt that was started on a terminal.
type screen struct {
	user
	cmd       *exec.Cmd
	pty, tty  *os.File // the user's side, and the program's
	before    unix.Termios
	reading   sync.WaitGroup
	mu        sync.Mutex
	shown     []byte
	seen      int // how much of it says and sees have been through
	stillOpen func()
}

// open starts nodevirt on a new terminal.
func (u user) open(args ...string) *screen {
	u.Helper()
	s := &screen{user: u}
	var err error
	if s.pty, s.tty, err = pty.Open(); err != nil {
		u.Fatal(err)
	}
	s.resize(24, 80)
	s.before = s.mode()
	ctx, cancel := context.WithTimeout(u.Context(), 10*time.Minute)
	s.cmd = u.n.Command(ctx, u.program, args...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.tty, s.tty, s.tty
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		u.Fatal(err)
	}
	s.reading.Go(s.read)
	s.stillOpen = sync.OnceFunc(func() {
		cancel()
		_ = s.cmd.Wait()
		_ = s.tty.Close()
		s.reading.Wait() // ends with the last of the terminal's users
		_ = s.pty.Close()
	})
	u.Cleanup(s.stillOpen)
	return s
}

func (s *screen) read() {
	buf := make([]byte, 4096)
	for {
		n, err := s.pty.Read(buf)
		s.mu.Lock()
		s.shown = append(s.shown, buf[:n]...)
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screen) text() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.shown)
}

// shows waits until what comes from here on matches.
func (s *screen) shows(pattern string) {
	s.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		text := s.text()
		if at := re.FindIndex(text[s.seen:]); at != nil {
			s.seen += at[1]
			return
		}
		if time.Now().After(end) {
			s.Fatalf("the terminal does not show %q but\n%q", pattern, text)
		}
	}
}

func (s *screen) types(keys string) {
	s.Helper()
	if _, err := s.pty.WriteString(keys); err != nil {
		s.Fatal(err)
	}
}

func (s *screen) resize(rows, columns uint16) {
	s.Helper()
	if err := pty.Setsize(s.pty, &pty.Winsize{Rows: rows, Cols: columns}); err != nil {
		s.Fatal(err)
	}
}

func (s *screen) mode() unix.Termios {
	s.Helper()
	m, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil {
		s.Fatal(err)
	}
	return *m
}

// ends waits for the program's end, which must leave the terminal as it was.
func (s *screen) ends(code int) {
	s.Helper()
	err := s.cmd.Wait()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got, err = exit.ExitCode(), nil
	}
	if err != nil || got != code {
		s.Errorf("it ends with %d, %v, not with %d; the terminal shows\n%s", got, err, code, s.text())
	}
	if after := s.mode(); after != s.before {
		s.Errorf("the terminal was left in the mode %+v; it was in %+v", after, s.before)
	}
	s.stillOpen()
}

// signal sends a signal to nodevirt itself, which nsenter has started.
func (s *screen) signal(sig syscall.Signal) {
	s.Helper()
	pid := strconv.Itoa(s.cmd.Process.Pid)
	children, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	if err != nil {
		s.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err == nil {
		err = syscall.Kill(child, sig)
	}
	if err != nil {
		s.Fatal(fmt.Errorf("signal %q: %w", children, err))
	}
}
