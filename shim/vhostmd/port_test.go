package vhostmd_test

import (
	"bufio"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/shim/vhostmd"
)

// serve serves a port on a unix socket, and returns QEMU's end of the connection.
func serve(t *testing.T, p vhostmd.Port) (qemu net.Conn, stop func(), served chan error) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "port"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if qemu, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served = make(chan error, 1)
	go func() { served <- p.Serve(ctx, conn) }()
	t.Cleanup(func() { stop(); qemu.Close() })
	return qemu, stop, served
}

// ask sends a request and returns the answer, up to the empty line.
func ask(t *testing.T, qemu net.Conn, in *bufio.Reader, request string) string {
	t.Helper()
	if _, err := qemu.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("%q: %v after %q", request, err, answer.String())
		}
		if line == "\n" {
			return answer.String()
		}
		answer.WriteString(line)
	}
}

func TestPort(t *testing.T) {
	value := uint64(0)
	qemu, stop, served := serve(t, vhostmd.Port{Metrics: func() []vhostmd.Metric {
		value++
		return []vhostmd.Metric{vhostmd.Number(vhostmd.Host, "Time", "s", value)}
	}})
	in := bufio.NewReader(qemu)
	for _, bad := range []string{"PUT /metrics/XML\n\n", "GET /metrics\n\n", "GET /metrics/XML\nHost: x\n\n", "\n"} {
		answer := ask(t, qemu, in, bad)
		if answer != "INVALID REQUEST\n" {
			t.Errorf("%.20q is answered with %q", bad, answer)
		}
	}
	for _, request := range []string{"GET /metrics/XML\n\n", "GET /metrics/XML\r\n\r\n"} {
		answer := ask(t, qemu, in, request)
		if !strings.HasPrefix(answer, "<metrics>\n") || !strings.HasSuffix(answer, "</metrics>\n") || !strings.Contains(answer, "<name>Time</name>") {
			t.Errorf("%q is answered with %q", request, answer)
		}
	}
	if value != 2 {
		t.Errorf("metrics were made %d times", value)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestPortPauses: a guest that asks all the time is answered at the port's pace, also with lines without end.
func TestPortPauses(t *testing.T) {
	for _, flood := range []string{"GET /metrics/XML\n\n", strings.Repeat("x", 5000)} {
		synctest.Test(t, func(t *testing.T) {
			conn, qemu := net.Pipe()
			p := vhostmd.Port{Pause: time.Second, Metrics: func() []vhostmd.Metric { return nil }}
			served := make(chan error, 1)
			go func() { served <- p.Serve(t.Context(), conn) }()
			answers := 0
			go func() {
				for in := bufio.NewReader(qemu); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					if line == "\n" {
						answers++
					}
				}
			}()
			go func() {
				for err := error(nil); err == nil; {
					_, err = qemu.Write([]byte(flood))
				}
			}()
			time.Sleep(10*time.Second + time.Millisecond)
			synctest.Wait()
			qemu.Close()
			if err := <-served; err != nil || answers != 11 {
				t.Errorf("%d answers in ten seconds, %v", answers, err)
			}
		})
	}
}
