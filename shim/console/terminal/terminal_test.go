package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine stands for QEMU: it takes one client at a time, and appends what it
// prints to a file.
type machine struct {
	t *testing.T
	Console
	ended    chan struct{}
	raw      *os.File
	listener net.Listener
	clients  chan net.Conn
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "console-") // t.TempDir's paths are too long for sockets
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(dir)) })
	m := &machine{t: t, ended: make(chan struct{}), clients: make(chan net.Conn)}
	m.Console = Console{Raw: filepath.Join(dir, "console"), Socket: filepath.Join(dir, "sock"), Ended: m.ended}
	m.raw, err = os.OpenFile(m.Raw, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	assert.NilError(t, err)
	m.listener, err = net.Listen("unix", m.Socket)
	assert.NilError(t, err)
	t.Cleanup(func() { m.listener.Close(); m.raw.Close() })
	return m
}

func (m *machine) accept() net.Conn {
	m.t.Helper()
	c, err := m.listener.Accept()
	assert.NilError(m.t, err)
	m.t.Cleanup(func() { c.Close() })
	return c
}

func (m *machine) print(text string) {
	m.t.Helper()
	_, err := m.raw.WriteString(text)
	assert.NilError(m.t, err)
}

// client is one who is attached. It sees what was written to it.
type client struct {
	t     *testing.T
	keys  *io.PipeWriter
	leave context.CancelFunc
	done  chan error

	mu   sync.Mutex
	text bytes.Buffer
}

func (c *client) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *client) seen() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

func (m *machine) attach(ts *Terminals, types bool) *client {
	c := &client{t: m.t, done: make(chan error, 1)}
	c.start(m, ts, types, c)
	return c
}

func (c *client) start(m *machine, ts *Terminals, types bool, out io.Writer) {
	ctx, cancel := context.WithCancel(m.t.Context())
	var in io.Reader
	if types {
		in, c.keys = io.Pipe()
		m.t.Cleanup(func() { _ = c.keys.Close() })
	}
	c.leave = cancel
	go func() { c.done <- ts.Attach(ctx, m.Console, in, out) }()
	m.t.Cleanup(cancel)
}

// types returns when the text is on its way: the next read has begun.
func (c *client) types(text string) {
	c.t.Helper()
	for _, part := range []string{text, ""} {
		_, err := c.keys.Write([]byte(part))
		assert.NilError(c.t, err)
	}
}

func (c *client) sees(text string) {
	c.t.Helper()
	for !strings.Contains(c.seen(), text) {
		select {
		case <-c.t.Context().Done():
			c.t.Fatalf("never saw %q, but %q", text, c.seen())
		case err := <-c.done:
			c.t.Fatalf("left, %v, and did not see %q, but %q", err, text, c.seen())
		case <-time.After(time.Millisecond):
		}
	}
}

func newTerminals() *Terminals { return New(slog.New(slog.DiscardHandler)) }

func TestSeveralSeeTheSameAndAllMayType(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	m.print("login: ")
	a := m.attach(ts, true)
	qemu := m.accept()
	b, viewer := m.attach(ts, true), m.attach(ts, false)
	for _, c := range []*client{a, b, viewer} {
		c.sees("login: ")
	}
	got := make([]byte, len("from a\nfrom b\n"))
	read := make(chan error)
	go func() {
		_, err := io.ReadFull(qemu, got)
		read <- err
	}()
	a.types("from a\n")
	b.types("from b\n")
	err := <-read
	assert.NilError(t, err)
	lines := strings.SplitAfter(string(got), "\n")
	if slices.Sort(lines); !slices.Equal(lines, []string{"", "from a\n", "from b\n"}) {
		t.Errorf("typed %q", got)
	}
	m.print("welcome")
	for _, c := range []*client{a, b, viewer} {
		c.sees("login: welcome")
	}
	// One leaves; it is nothing to the others, nor to the guest.
	a.leave()
	assert.NilError(t, <-a.done)
	b.types("x")
	_, err = io.ReadFull(qemu, got[:1])
	assert.NilError(t, err)
	m.print(" home")
	b.sees("login: welcome home")
	// With the last one who could type the connection goes, and comes again.
	b.leave()
	assert.NilError(t, <-b.done)
	if n, err := qemu.Read(got); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after all have left: %d, %v", n, err)
	}
	again := m.attach(ts, true)
	qemu = m.accept()
	again.types("back")
	_, err = io.ReadFull(qemu, got[:4])
	assert.NilError(t, err)
	viewer.sees(" home")
}

func TestWhoLeavesHasTyped(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	c := m.attach(ts, true)
	c.types("poweroff\n")
	c.leave()
	assert.NilError(t, <-c.done)
	got, err := io.ReadAll(m.accept())
	if string(got) != "poweroff\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// QEMU appends twice what its socket does not take at once. So each write to it fails, at once and for good.
func TestQEMUIsNeverMadeToTryAgain(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	c := m.attach(ts, true)
	qemu := m.accept()
	c.types("x")
	_, err := io.ReadFull(qemu, make([]byte, 1))
	assert.NilError(t, err)
	for range 10_000 {
		if _, err := qemu.Write([]byte{'o'}); !errors.Is(err, syscall.EPIPE) {
			t.Fatalf("a write to the socket: %v", err)
		}
	}
	c.types("y") // still the same connection
	_, err = io.ReadFull(qemu, make([]byte, 1))
	assert.NilError(t, err)
}

// QEMU may end a connection, and drop a key that it has not read.
func TestADroppedKeyIsTypedAgain(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	c := m.attach(ts, true)
	first := m.accept()
	const text = "a long line that is typed\n"
	c.types(text)
	got := make([]byte, len(text))
	_, err := io.ReadFull(first, got[:5])
	assert.NilError(t, err)
	assert.NilError(t, first.Close())
	_, err = io.ReadFull(m.accept(), got[5:])
	assert.NilError(t, err)
	if string(got) != text {
		t.Errorf("typed %q", got)
	}
}

func TestHistoryIsTheLastWholeLines(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	var all strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&all, "line %d\r\n", i)
	}
	m.print(all.String())
	c := m.attach(ts, false)
	c.sees("line 9999\r\n")
	seen := c.seen()
	if !strings.HasPrefix(seen, "line ") || !strings.HasSuffix(all.String(), seen) {
		t.Errorf("history begins with %q", seen[:20])
	}
	if len(seen) > history || len(seen) < history-20 {
		t.Errorf("history has %d bytes", len(seen))
	}
}

// stuck is a client that doesn't read until it is let go.
type stuck struct {
	*client
	reached, free chan struct{}
	once          sync.Once
}

func (s *stuck) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.reached) })
	<-s.free
	return s.client.Write(p)
}

func TestALiveClientSeesNoHistory(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	m.print("login: ")
	m.Live, m.Greeting = true, "hello\n"
	c := m.attach(ts, true)
	qemu := m.accept()
	c.types("x")
	_, err := io.ReadFull(qemu, make([]byte, 1))
	assert.NilError(t, err)
	m.print("welcome")
	c.sees("welcome")
	assert.Equal(t, c.seen(), "hello\nwelcome")
}

func TestASlowClientSkipsAndDisturbsNoOther(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	m.print("begin\n")
	slow := &stuck{client: &client{t: t, done: make(chan error, 1)}, reached: make(chan struct{}), free: make(chan struct{})}
	slow.start(m, ts, false, slow)
	<-slow.reached
	fast := m.attach(ts, false)
	line := strings.Repeat("0123456789abcdef", 64) + "\n"
	for i := range 4096 {
		m.print(line)
		if i%64 == 0 { // a reader that keeps up
			m.print(fmt.Sprintf("mark %d\n", i))
			fast.sees(fmt.Sprintf("mark %d\n", i))
		}
	}
	m.print("end\n")
	fast.sees("end\n")
	if strings.Contains(fast.seen(), "skipped") {
		t.Error("a client that kept up has missed something")
	}
	close(slow.free)
	slow.sees("end\n")
	if seen := slow.seen(); !strings.HasPrefix(seen, "begin\n\r\n[nodevirt: ") || !strings.Contains(seen, "bytes of console output skipped") || len(seen) > 2*history {
		t.Errorf("the slow client saw %d bytes, which begin with %q", len(seen), seen[:100])
	}
}

func TestAGuestThatDoesNotReadBlocksNoClient(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	a := m.attach(ts, true)
	m.accept() // and read nothing
	typing := make(chan struct{})
	go func() {
		defer close(typing)
		_, _ = io.Copy(a.keys, strings.NewReader(strings.Repeat("k", 4<<20)))
	}()
	b := m.attach(ts, true)
	m.print("silence")
	b.sees("silence")
	for _, c := range []*client{a, b} {
		c.leave()
		assert.NilError(t, <-c.done)
	}
	_ = a.keys.CloseWithError(io.ErrClosedPipe)
	<-typing
}

func TestTheEndIsShown(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	c := m.attach(ts, true)
	m.accept().Close() // QEMU goes first
	m.print("powering off")
	close(m.ended)
	if err := <-c.done; err != nil || c.seen() != "powering off" {
		t.Errorf("saw %q, %v", c.seen(), err)
	}
}

func TestAClientThatFailsIsLetGo(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	m.print("hello")
	r, w := io.Pipe()
	_ = r.Close()
	if err := ts.Attach(t.Context(), m.Console, nil, w); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestAnEmptiedFileIsReadFromTheStart(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	m.print("before")
	c := m.attach(ts, false)
	c.sees("before")
	assert.NilError(t, m.raw.Truncate(0))
	m.print("new")
	c.sees("beforenew")
}

func TestOnlyARegularFileIsShown(t *testing.T) {
	m, ts := newMachine(t), newTerminals()
	for _, path := range []string{m.Socket, filepath.Dir(m.Raw), filepath.Join(filepath.Dir(m.Raw), "link"), "/nowhere"} {
		_ = os.Symlink(m.Raw, filepath.Join(filepath.Dir(m.Raw), "link"))
		if err := ts.Attach(t.Context(), Console{Raw: path, Socket: m.Socket}, nil, io.Discard); err == nil {
			t.Errorf("%s was shown", path)
		}
	}
}
