package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func identity(t *testing.T) Identity {
	t.Helper()
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// ends are both ends of a migration, on the loopback.
type ends struct {
	source, target Identity
	address        string
	served         atomic.Int32
	ended          chan error
	cancel         context.CancelFunc
}

func start(t *testing.T, serve func(context.Context, Stream, net.Conn)) *ends {
	t.Helper()
	e := &ends{source: identity(t), target: identity(t), ended: make(chan error, 1)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.address = l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	e.cancel = cancel
	listener := NewListener(l, e.target, e.source.Fingerprint(), func(ctx context.Context, s Stream, c net.Conn) {
		e.served.Add(1)
		serve(ctx, s, c)
	})
	go func() { e.ended <- listener.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-e.ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *ends) tcp(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", e.address)
}

func (e *ends) dialer() *Dialer { return NewDialer(e.source, e.target.Fingerprint(), e.tcp) }

func echo(_ context.Context, s Stream, c net.Conn) {
	_, _ = c.Write([]byte{byte(s)})
	_, _ = io.Copy(c, c)
}

func TestStreams(t *testing.T) {
	e := start(t, echo)
	for _, s := range []Stream{Control, Memory, Disks} {
		c, err := e.dialer().Dial(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 2)
		if _, err := io.ReadFull(c, got); err != nil || got[0] != byte(s) || got[1] != 'x' {
			t.Errorf("stream %d: %q, %v", s, got, err)
		}
	}
}

// refused reports whether a connection ends without data.
func refused(t *testing.T, c net.Conn) bool {
	t.Helper()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, err := c.Read(make([]byte, 1))
	return err != nil
}

// TestStrangers has connections of all but the source: none reaches serve.
func TestStrangers(t *testing.T) {
	e := start(t, echo)
	old := identity(t) // of an earlier migration of the same VM
	stolen := old
	stolen.certificate.Certificate = e.source.certificate.Certificate // without its key
	chain := old
	chain.certificate.Certificate = append([][]byte{old.certificate.Certificate[0]}, e.source.certificate.Certificate...)
	first := old
	first.certificate.Certificate = append([][]byte{e.source.certificate.Certificate[0]}, old.certificate.Certificate...)
	for name, id := range map[string]Identity{"an old certificate": old, "a certificate without its key": stolen, "a chain": chain, "a false chain": first} {
		c, err := NewDialer(id, e.target.Fingerprint(), e.tcp).Dial(t.Context(), Control)
		if err == nil && !refused(t, c) {
			t.Errorf("%s is accepted", name)
		}
	}
	for name, config := range map[string]*tls.Config{
		"no certificate": {InsecureSkipVerify: true, MinVersion: tls.VersionTLS13},
		"TLS 1.2":        {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{e.source.certificate}},
	} {
		raw, err := e.tcp(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := tls.Client(raw, config)
		_, _ = c.Write([]byte{byte(Control)})
		if !refused(t, c) {
			t.Errorf("%s is accepted", name)
		}
	}
	for name, bytes := range map[string][]byte{"HTTP": []byte("GET / HTTP/1.1\r\n\r\n"), "zeros": make([]byte, 64)} {
		c, err := e.tcp(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(bytes)
		for answer, _ := io.ReadAll(io.LimitReader(c, 1<<10)); len(answer) > 64; { // more than TLS's alert
			t.Fatalf("%s: %q", name, answer)
		}
		c.Close()
	}
	c, err := e.dialer().Dial(t.Context(), Stream(9))
	if err != nil {
		t.Fatal(err)
	}
	if !refused(t, c) {
		t.Error("an unknown stream is accepted")
	}
	if n := e.served.Load(); n != 0 {
		t.Errorf("%d connections were served", n)
	}
}

// TestFalseTarget: the source sends nothing to another than its target.
func TestFalseTarget(t *testing.T) {
	e := start(t, echo)
	if c, err := NewDialer(e.source, identity(t).Fingerprint(), e.tcp).Dial(t.Context(), Memory); err == nil {
		c.Close()
		t.Error("another target is accepted")
	}
	if n := e.served.Load(); n != 0 {
		t.Errorf("%d connections were served", n)
	}
}

// TestCrowd: strangers who say nothing do not keep the source out for longer than a
// handshake may take, and the peer's connections are bounded.
func TestCrowd(t *testing.T) {
	e := start(t, func(ctx context.Context, _ Stream, c net.Conn) {
		_, _ = c.Write([]byte("x"))
		<-ctx.Done()
	})
	crowd := make([]net.Conn, 2*maxStrangers)
	for i := range crowd {
		c, err := e.tcp(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		crowd[i] = c
	}
	if !refused(t, crowd[len(crowd)-1]) {
		t.Error("too many strangers are accepted")
	}
	closeAll(crowd...)
	open := 0
	for attempt := 0; attempt < 300 && open < maxStreams; attempt++ {
		c, err := e.dialer().Dial(t.Context(), Disks)
		if err != nil {
			time.Sleep(20 * time.Millisecond) // strangers that have gone are still counted
			continue
		}
		defer c.Close()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			open++
		}
	}
	c, err := e.dialer().Dial(t.Context(), Disks)
	if err != nil {
		t.Fatal(err)
	}
	if open != maxStreams || !refused(t, c) {
		t.Errorf("%d streams, and one more", open)
	}
	e.cancel() // ends the others, and serve
	if err := <-e.ended; err != nil {
		t.Error(err)
	}
	e.ended <- nil
}

// TestEndlessStream: a stream without an end ends with the migration.
func TestEndlessStream(t *testing.T) {
	e := start(t, func(_ context.Context, _ Stream, c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	c, err := e.dialer().Dial(t.Context(), Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.AfterFunc(50*time.Millisecond, e.cancel)
	for block := make([]byte, 1<<16); err == nil; {
		_, err = c.Write(block)
	}
}

// TestRelay sends 8 MiB from one unix socket to another over the link, and an answer.
func TestRelay(t *testing.T) {
	dir := t.TempDir()
	qemu, err := net.Listen("unix", filepath.Join(dir, "target"))
	if err != nil {
		t.Fatal(err)
	}
	defer qemu.Close()
	go func() {
		c, err := qemu.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		h := sha256.New()
		_, _ = io.Copy(h, c) // to the end of this direction
		_, _ = c.Write(h.Sum(nil))
	}()
	e := start(t, func(ctx context.Context, s Stream, c net.Conn) {
		if s == Memory {
			_ = Deliver(ctx, c, filepath.Join(dir, "target"))
		}
	})
	in, err := net.Listen("unix", filepath.Join(dir, "source"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	forwarded := make(chan error, 1)
	go func() { forwarded <- e.dialer().Forward(ctx, in, Memory) }()

	c, err := net.Dial("unix", filepath.Join(dir, "source"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	data := make([]byte, 8<<20)
	_, _ = rand.Read(data)
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256(data)
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want[:]) {
		t.Errorf("%x, %v", got, err)
	}

	// Without QEMU the caller's stream ends.
	qemu.Close()
	lost, err := net.Dial("unix", filepath.Join(dir, "source"))
	if err != nil {
		t.Fatal(err)
	}
	if !refused(t, lost) {
		t.Error("a stream to nothing")
	}
	cancel()
	if err := <-forwarded; err != nil {
		t.Error(err)
	}
}

func TestFingerprint(t *testing.T) {
	f := identity(t).Fingerprint()
	if got, err := ParseFingerprint(f.String()); err != nil || got != f {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "ab", f.String() + "00", "zz" + f.String()[2:]} {
		if _, err := ParseFingerprint(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if f == identity(t).Fingerprint() {
		t.Error("two identities are equal")
	}
}
