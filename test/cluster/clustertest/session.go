package clustertest

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

// Session is a client that runs on, on a terminal. It is killed when the test ends.
type Session struct {
	t        *testing.T
	terminal *os.File
	ended    chan struct{} // closed after the client, when all of its output is in text

	mu   sync.Mutex
	text bytes.Buffer
}

// Start starts a client, such as [cluster.Cluster.KubectlCommand], with arguments.
func Start(t *testing.T, client func(context.Context, ...string) *exec.Cmd, args ...string) *Session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &Session{t: t}
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

func (s *Session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// Text returns the output so far.
func (s *Session) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Ended is closed when the client has ended and all of its output has come.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Types types a text once.
func (s *Session) Types(text string) {
	s.t.Helper()
	_, err := s.terminal.WriteString(text)
	assert.NilError(s.t, err)
}

// Until types a text, time and again, until the output holds a line with what is wanted, and returns that.
func (s *Session) Until(typed, want string) (line string) {
	s.t.Helper()
	wait.Success(s.t, fmt.Sprintf("%q in the output", want), func(context.Context) error {
		text := s.Text()
		// First, for a client that has done what it was to do may be gone.
		for line = range strings.Lines(text) {
			if strings.Contains(line, want) {
				return nil
			}
		}
		select {
		case <-s.ended: // a terminal without a client takes no more once it is full
			s.t.Fatalf("no %q in the output of a client that has ended: %q", want, s.Text())
		default:
		}
		if _, err := s.terminal.WriteString(typed); err != nil {
			return fmt.Errorf("type: %w; output: %q", err, text)
		}
		return fmt.Errorf("output: %q", text)
	})
	return strings.TrimSpace(line)
}
