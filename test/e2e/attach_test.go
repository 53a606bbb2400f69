package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// session is a program with streams into the node, such as crictl attach.
type session struct {
	t     *testing.T
	stdin io.WriteCloser
	leave context.CancelFunc
	done  chan error

	mu   sync.Mutex
	text bytes.Buffer
}

// session runs a program. It is killed when the test ends.
func newSession(t *testing.T, name string, args ...string) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &session{t: t, leave: cancel, done: make(chan error, 1)}
	cmd := suite.Command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = s, s
	s.run(cmd)
	return s
}

// onTerminal runs a command line on a terminal, which script brings.
func onTerminal(t *testing.T, line string) *session {
	t.Helper()
	// The terminal's end is the command's by a hangup, which a run of the tests may ignore.
	return newSession(t, "env", "--default-signal=HUP", "script", "-qefc", line, "/dev/null")
}

func (s *session) run(cmd *exec.Cmd) {
	s.t.Helper()
	var err error
	s.stdin, err = cmd.StdinPipe()
	assert.NilError(s.t, err)
	assert.NilError(s.t, cmd.Start())
	ended := make(chan struct{})
	go func() { s.done <- cmd.Wait(); close(ended) }()
	s.t.Cleanup(func() { s.leave(); <-ended })
}

func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *session) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *session) types(text string) {
	s.t.Helper()
	_, err := io.WriteString(s.stdin, text)
	assert.NilError(s.t, err)
}

func (s *session) sees(text string) {
	s.t.Helper()
	for end := time.Now().Add(wait.Patience); !strings.Contains(s.seen(), text); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-s.done:
			s.t.Fatalf("ended, %v, and did not see %q, but:\n%s", err, text, s.seen())
		default:
		}
		if time.Now().After(end) {
			s.t.Fatalf("did not see %q, but:\n%s", text, s.seen())
		}
	}
}

// ends waits for the program's end.
func (s *session) ends() error {
	s.t.Helper()
	select {
	case err := <-s.done:
		return err
	case <-time.After(wait.Patience):
		s.t.Fatalf("did not end; saw:\n%s", s.seen())
		return nil
	}
}

func (c *container) attach(args ...string) *session {
	c.t.Helper()
	return newSession(c.t, "crictl", append(append([]string{"attach"}, args...), c.id)...)
}

func TestAttach(t *testing.T) {
	t.Parallel()
	c := vmPod(t).vm(suite.tiny).start().up()
	spdy, web := c.attach("-i"), c.attach("-i")
	watching := c.attach()
	terminal := onTerminal(t, "crictl attach -it "+c.id)
	all := map[string]*session{"spdy": spdy, "web": web, "terminal": terminal}
	for _, s := range all {
		s.sees("nodevirt guest: up host=") // what was before it came
	}
	watching.sees("nodevirt guest: up host=")
	for name, s := range all {
		s.types("echo $((6 * 7)) by " + name + "\r")
		for _, other := range all {
			other.sees("42 by " + name)
		}
		watching.sees("42 by " + name)
	}
	// Leaving, by whatever way, disturbs neither the others nor the guest.
	for _, s := range []*session{web, terminal} {
		s.leave()
		_ = s.ends()
	}
	// A client that doesn't read, and a guest that prints without end.
	stuck := suite.Command(t.Context(), "crictl", "attach", c.id)
	pipe, err := stuck.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, stuck.Start())
	_, err = io.ReadFull(pipe, make([]byte, 1))
	assert.NilError(t, err)
	spdy.types("seq 1 120000; echo all $((100 + 20)) said\r")
	spdy.sees("all 120 said")
	spdy.types("echo still $((4 + 4))\r")
	watching.sees("still 8")
	rest, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-rest.Done()
		_ = stuck.Cancel()
	}()
	late := make([]byte, 1<<20)
	for text := ""; !strings.Contains(text, "still 8"); {
		n, err := pipe.Read(late)
		assert.NilError(t, err)
		text = text[max(len(text)-100, 0):] + string(late[:n])
	}
	cancel()
	_ = stuck.Wait()

	// The machine starts again, and its clients stay.
	spdy.types("/etc/stop reboot\r")
	wait.Until(t, "the guest is up again", func() bool { return strings.Count(spdy.seen(), "nodevirt guest: up host=") == 2 })
	spdy.types("echo again $((1 + 1))\r")
	watching.sees("again 2")
	// Its end is theirs.
	spdy.types("/etc/stop poweroff\r")
	for _, s := range []*session{spdy, watching} {
		if err := s.ends(); err != nil {
			t.Errorf("at the machine's end: %v", err)
		}
	}
	c.wantEnd(c.ended(), 0, "Completed")
	_, err = suite.cri.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: c.id, Stdout: true})
	wantError(t, err, codes.Unknown, "container is in CONTAINER_EXITED state")
}

func wantError(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("got %v; want code %s and %q", err, code, text)
	}
}

func TestStreamsThatAreRefused(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	c := p.vm(suite.halt)
	attach := func(r *runtimeapi.AttachRequest) error {
		_, err := suite.cri.Attach(t.Context(), r)
		return err
	}
	wantError(t, attach(&runtimeapi.AttachRequest{ContainerId: c.id, Stdout: true}), codes.Unknown, "container is in CONTAINER_CREATED state")
	c.start()
	wantError(t, attach(&runtimeapi.AttachRequest{ContainerId: c.id[:12]}), codes.InvalidArgument, "one of stdin, stdout, and stderr must be set")
	wantError(t, attach(&runtimeapi.AttachRequest{ContainerId: c.id, Stdout: true, Stderr: true, Tty: true}), codes.InvalidArgument, "tty and stderr cannot both be true")
	wantError(t, attach(&runtimeapi.AttachRequest{ContainerId: "none", Stdout: true}), codes.NotFound, "failed to find container")
	// A URL is good once.
	reply, err := suite.cri.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: c.id[:12], Stdout: true})
	assert.NilError(t, err)
	for i, want := range []string{"400", "404"} { // the first is no upgrade
		if out := inNode(t, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", reply.Url); out != want {
			t.Errorf("use %d of a URL: %s, want %s", i+1, out, want)
		}
	}
}

// TestTheShimRestartsUnderClients is not parallel: all tests share the shim.
func TestTheShimRestartsUnderClients(t *testing.T) {
	c := vmPod(t).vm(suite.tiny).start().up()
	cut := c.attach("-i")
	cut.types("echo before $((1 + 1))\r")
	cut.sees("before 2")
	pid := c.pid()
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	_ = cut.ends() // how, is crictl's matter
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	again := c.attach("-i")
	again.sees("before 2")
	again.types("echo after $((2 + 2))\r")
	again.sees("after 4")
	if got := c.pid(); got != pid {
		t.Errorf("the machine's process was %d and is %d", pid, got)
	}
	// An orderly end cuts clients too, and does not wait for them.
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGTERM))
	if err := again.ends(); errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	last := c.attach("-i")
	last.sees("after 4")
	last.types("/etc/stop poweroff\r")
	assert.NilError(t, last.ends())
}
