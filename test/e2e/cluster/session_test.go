//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// session is a client that runs on, on a terminal. It is killed when the test ends.
type session struct {
	t        *testing.T
	terminal *os.File
	ended    chan struct{} // closed after the client, when all of its output is in text

	mu   sync.Mutex
	text bytes.Buffer
}

func start(t *testing.T, args ...string) *session {
	t.Helper()
	return startOn(t, suite.KubectlCommand, args...)
}

// startOn is start for another client.
func startOn(t *testing.T, client func(context.Context, ...string) *exec.Cmd, args ...string) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &session{t: t}
	cmd := client(ctx, args...)
	cmd.SysProcAttr.Setpgid = false // the terminal makes it a session's leader, and so a group's
	terminal, err := pty.Start(cmd)
	assert.NilError(t, err)
	s.terminal = terminal
	s.ended = make(chan struct{})
	go func() {
		_, _ = io.Copy(s, terminal) // until the client ends, or the terminal is closed
		close(s.ended)
	}()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		_ = terminal.Close()
		<-s.ended
	})
	return s
}

func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// types types a text once.
func (s *session) types(text string) {
	s.t.Helper()
	_, err := s.terminal.WriteString(text)
	assert.NilError(s.t, err)
}

// until types a text, time and again, until the output holds a line with what is wanted, and returns that.
func (s *session) until(typed, want string) (line string) {
	s.t.Helper()
	wait.Success(s.t, fmt.Sprintf("%q in the output", want), func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		// First, for a client that has done what it was to do may be gone.
		for line = range strings.Lines(s.text.String()) {
			if strings.Contains(line, want) {
				return nil
			}
		}
		select {
		case <-s.ended: // a terminal without a client takes no more once it is full
			s.t.Fatalf("no %q in the output of a client that has ended: %q", want, s.text.String())
		default:
		}
		if _, err := s.terminal.WriteString(typed); err != nil {
			return fmt.Errorf("type: %w; output: %q", err, s.text.String())
		}
		return fmt.Errorf("output: %q", s.text.String())
	})
	return strings.TrimSpace(line)
}
