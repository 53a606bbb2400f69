package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/stream/client"
)

// ports is a machine whose ports are those of the test's own machine.
type ports struct{ echoes }

func (p ports) Forward(ctx context.Context, _ string, port uint16, c io.ReadWriteCloser) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	stream.Join(ctx, c, conn.(*net.TCPConn))
	return nil
}

// port answers each connection by serve, in a separate goroutine.
func port(t *testing.T, serve func(*net.TCPConn)) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func forward(t *testing.T) *client.Ports {
	t.Helper()
	s := newServer(t, ports{newEchoes()}, 0)
	reply, err := s.PortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "s1"})
	assert.NilError(t, err)
	p, err := client.DialPorts(t.Context(), reply.Url)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// local is the end of a connection that a client of a forwarded port has.
func local(t *testing.T, p *client.Ports, port uint16) (conn *net.TCPConn, joined <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	assert.NilError(t, err)
	far, err := l.Accept()
	assert.NilError(t, err)
	done := make(chan error, 1)
	go func() {
		done <- p.Join(port, far)
		far.Close()
	}()
	t.Cleanup(func() { near.Close() })
	return near.(*net.TCPConn), done
}

func TestTheEndOfOneDirectionIsPassedOn(t *testing.T) {
	// It answers when all is said: what wc or an SMTP server's client is like.
	counting := port(t, func(c *net.TCPConn) {
		n, err := io.Copy(io.Discard, c)
		fmt.Fprintf(c, "%d bytes, %v", n, err)
	})
	// It says all at once, and is gone.
	telling := port(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "the time") })
	p := forward(t)
	conn, joined := local(t, p, counting)
	_, err := io.WriteString(conn, strings.Repeat("x", 1<<20))
	assert.NilError(t, err)
	assert.NilError(t, conn.CloseWrite())
	answer, err := io.ReadAll(conn)
	if string(answer) != "1048576 bytes, <nil>" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	assert.NilError(t, <-joined)
	conn, joined = local(t, p, telling)
	if answer, err := io.ReadAll(conn); string(answer) != "the time" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	assert.NilError(t, <-joined)
}

func TestManyStreamsAtOnce(t *testing.T) {
	echo := port(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c); _ = c.CloseWrite() })
	p := forward(t)
	var all sync.WaitGroup
	for i := range 100 {
		text := strings.Repeat(fmt.Sprintf("stream %d ", i), 10_000)
		conn, joined := local(t, p, echo)
		all.Go(func() {
			_, err := io.WriteString(conn, text)
			if err = errors.Join(err, conn.CloseWrite()); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			back, err := io.ReadAll(conn)
			if string(back) != text || err != nil {
				t.Errorf("stream %d: %d bytes of %d came back, %v", i, len(back), len(text), err)
			}
			if err := <-joined; err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// closedPort is a port that is reserved while the test runs, and refuses: no process listens on it.
func closedPort(t *testing.T) uint16 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	assert.NilError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	address, err := unix.Getsockname(fd)
	assert.NilError(t, err)
	return uint16(address.(*unix.SockaddrInet4).Port)
}

func TestAPortThatRefusesIsReported(t *testing.T) {
	p := forward(t)
	echo := port(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	number := closedPort(t)
	_, joined := local(t, p, number)
	if err := <-joined; err == nil || !strings.Contains(err.Error(), "connection refused") ||
		!strings.Contains(err.Error(), fmt.Sprintf("error forwarding port %d to pod s1", number)) {
		t.Error(err)
	}
	// The others, and those that come, go on.
	conn, joined := local(t, p, echo)
	_, err := io.WriteString(conn, "still here")
	assert.NilError(t, err)
	assert.NilError(t, conn.CloseWrite())
	if back, err := io.ReadAll(conn); string(back) != "still here" || err != nil {
		t.Errorf("%q, %v", back, err)
	}
	assert.NilError(t, <-joined)
}

func TestAPortThatResetsIsNothingToOthers(t *testing.T) {
	rude := port(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.SetLinger(0)
	})
	echo := port(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	p := forward(t)
	other, _ := local(t, p, echo)
	conn, joined := local(t, p, rude)
	_, err := io.WriteString(conn, "x")
	assert.NilError(t, err)
	if rest, err := io.ReadAll(conn); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	assert.NilError(t, <-joined)
	_, err = io.WriteString(other, "still here")
	assert.NilError(t, err)
	_, err = io.ReadFull(other, make([]byte, 10))
	assert.NilError(t, err)
}

func TestAClientThatIsLostLetsThePortGo(t *testing.T) {
	gone := make(chan struct{})
	silent := port(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "hello")
		_, _ = io.Copy(io.Discard, c) // ends when the other side does
		close(gone)
	})
	p := forward(t)
	conn, _ := local(t, p, silent)
	_, err := io.ReadFull(conn, make([]byte, 5))
	assert.NilError(t, err)
	assert.NilError(t, p.Close())
	<-gone
}
