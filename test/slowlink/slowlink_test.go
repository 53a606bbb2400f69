package slowlink_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/slowlink"
)

// TestLink sends data to an echo server through a link. Only lower bounds are checked: a busy machine is slower.
func TestLink(t *testing.T) {
	link := slowlink.Link{RoundTrip: 40 * time.Millisecond, Rate: 4 << 20}
	begun := time.Now() // the delay of the handshake begins before dial returns
	conn := dial(t, link)
	_, err := conn.Write([]byte("a"))
	assert.NilError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 1))
	assert.NilError(t, err)
	if took := time.Since(begun); took < 2*link.RoundTrip {
		t.Errorf("the handshake and one echo took %v", took)
	}

	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent)
	begun = time.Now()
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	assert.NilError(t, err)
	assert.Assert(t, bytes.Equal(got, sent))
	if took := time.Since(begun); took < 250*time.Millisecond {
		t.Errorf("1 MiB at 4 MiB a second took %v", took)
	}
}

// TestSharedRate sends by two connections, which share the link's rate.
func TestSharedRate(t *testing.T) {
	link := slowlink.Link{Rate: 4 << 20}
	l := serve(t, link)
	begun := time.Now()
	done := make(chan error)
	for range 2 {
		go func() {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				done <- err
				return
			}
			defer conn.Close()
			go func() {
				_, _ = conn.Write(make([]byte, 512<<10))
				_ = conn.(*net.TCPConn).CloseWrite()
			}()
			_, err = io.Copy(io.Discard, conn)
			done <- err
		}()
	}
	assert.NilError(t, <-done)
	assert.NilError(t, <-done)
	if took := time.Since(begun); took < 250*time.Millisecond {
		t.Errorf("2 × 512 KiB at 4 MiB a second took %v", took)
	}
}

// TestServerGoesAway ends the far end.
func TestServerGoesAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	go func() {
		_ = slowlink.Link{}.Serve(t.Context(), l, func(context.Context) (net.Conn, error) { return nil, io.EOF })
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	assert.NilError(t, err)
	defer conn.Close()
	assert.NilError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
}

func dial(t *testing.T, link slowlink.Link) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", serve(t, link).Addr().String())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

// serve returns the near end of a link to an echo server.
func serve(t *testing.T, link slowlink.Link) net.Listener {
	t.Helper()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	near, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- link.Serve(ctx, near, func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", echo.Addr().String())
		})
	}()
	t.Cleanup(func() {
		cancel()
		assert.Check(t, <-ended)
		_ = echo.Close()
	})
	return near
}
