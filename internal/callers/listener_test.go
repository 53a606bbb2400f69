package callers_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/internal/callers"
)

const most = 8

// serve serves a handler, and returns its address.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Hour}
	ended := make(chan error)
	go func() { ended <- s.Serve(callers.Limit(tcp, most).Prepare(s)) }()
	t.Cleanup(func() {
		_ = s.Close()
		assert.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return tcp.Addr().String()
}

// silent connects from a loopback address without a word.
func silent(t *testing.T, from byte, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
	c, err := dialer.DialContext(t.Context(), "tcp", to)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func get(ctx context.Context, address string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return "", err
	}
	reply, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return string(text), err
}

// TestSilentCallers: connections without a request close each other's, and none that is served.
func TestSilentCallers(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-release
		}
		_, _ = io.WriteString(w, "served")
	})
	slow := make(chan error, 1)
	go func() {
		text, err := get(t.Context(), address+"/slow")
		if err == nil && text != "served" {
			err = io.ErrUnexpectedEOF
		}
		slow <- err
	}()
	<-begun
	neighbour := silent(t, 9, address) // a client that is slow to send
	for range 5 * most {
		silent(t, 10, address)
		silent(t, 11, address)
	}
	text, err := get(t.Context(), address)
	assert.NilError(t, err)
	assert.Equal(t, text, "served")
	_, err = io.WriteString(neighbour, "GET / HTTP/1.0\r\n\r\n")
	assert.NilError(t, err)
	reply, err := io.ReadAll(neighbour)
	assert.NilError(t, err, "an address with one connection lost it to those with many")
	assert.Assert(t, len(reply) > 0)
	close(release)
	assert.NilError(t, <-slow, "a request that is served")
}

// TestAllAreServed: if all connections have requests, another one is refused at once, and one that has ended leaves its place.
func TestAllAreServed(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "served")
	})
	ended := make(chan error, most)
	for range most {
		go func() {
			_, err := get(t.Context(), address)
			ended <- err
		}()
		<-begun
	}
	if _, err := get(t.Context(), address); err == nil {
		t.Fatal("more connections are served than the most")
	}
	release <- struct{}{}
	assert.NilError(t, <-ended)
	go func() {
		_, err := get(t.Context(), address)
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("the place of a connection that has ended: %v", err)
	}
	close(release)
	for range most {
		assert.NilError(t, <-ended)
	}
}
