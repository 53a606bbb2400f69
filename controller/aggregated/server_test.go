package aggregated

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/test/cluster/pki"
	"github.com/nodevirt/nodevirt/test/wait"
)

// rig is a server whose group answers with the user's name.
type rig struct {
	address string
	front   *pki.Authority
	roots   *x509.CertPool
}

func newRig(t *testing.T) rig {
	t.Helper()
	front, own := pki.ForTest(t, "authority"), pki.ForTest(t, "authority")
	r := rig{front: front, roots: own.Pool()}
	serving := own.TLS(t, pki.Identity{Name: "server", Hosts: []string{"127.0.0.1"}})
	s := newServer(t, front, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil })
	r.address = serve(t, s)
	assert.NilError(t, wait.Do(t.Context(), func(context.Context) error { return s.Ready(nil) }))
	return r
}

// newServer returns a server with a certificate, in a cluster that has published its front proxy's authority.
func newServer(t *testing.T, front *pki.Authority, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *Server {
	t.Helper()
	cluster := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: authenticationNamespace, Name: authenticationConfig},
		Data: map[string]string{
			"requestheader-client-ca-file":       string(front.PEM()),
			"requestheader-allowed-names":        `["front"]`,
			"requestheader-username-headers":     `["X-Remote-User"]`,
			"requestheader-group-headers":        `["X-Remote-Group"]`,
			"requestheader-uid-headers":          `["X-Remote-Uid"]`,
			"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		},
	})
	s, err := New(Options{Certificate: certificate, Cluster: cluster, Log: slog.New(slog.DiscardHandler)})
	assert.NilError(t, err)
	s.Add("example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := s.Caller(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, u.GetName())
	}), "v1")
	return s
}

// serve runs a server until the test ends, and returns its address.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		assert.NilError(t, <-ended)
	})
	return l.Addr().String()
}

// get requests a path with a client certificate, if there is one.
func (r rig) get(t *testing.T, cert *tls.Certificate, path, user string) (int, string, error) {
	t.Helper()
	config := &tls.Config{RootCAs: r.roots, MinVersion: tls.VersionTLS12}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 20 * time.Second}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.address+path, nil)
	assert.NilError(t, err)
	if user != "" {
		request.Header.Set("X-Remote-User", user)
	}
	reply, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	return reply.StatusCode, string(text), err
}

// TestCallers: only the front proxy can connect, and only its word on a user counts.
func TestCallers(t *testing.T) {
	r := newRig(t)
	front, other, stranger := r.front.TLS(t, pki.Identity{Name: "front"}), r.front.TLS(t, pki.Identity{Name: "kubelet"}), pki.ForTest(t, "authority").TLS(t, pki.Identity{Name: "front"})
	for name, cert := range map[string]*tls.Certificate{
		"no certificate": nil, "another authority": &stranger, "another name": &other,
	} {
		for _, path := range []string{"/apis/example.com/v1", "/apis", "/apis/example.com", "/healthz"} {
			if code, text, err := r.get(t, cert, path, "admin"); err == nil {
				t.Errorf("%s: %s answers %d %q", name, path, code, text)
			}
		}
	}
	for _, tt := range []struct {
		path, user string
		code       int
		text       string
	}{
		{"/apis/example.com/v1", "ann", 200, "ann"},
		{"/apis/example.com/v1", "", 401, "front proxy"},
		{"/apis", "ann", 200, `"name":"example.com"`},
		{"/apis/example.com", "ann", 200, `"preferredVersion":{"groupVersion":"example.com/v1"`},
		{"/metrics", "ann", 404, "could not find"},
	} {
		code, text, err := r.get(t, &front, tt.path, tt.user)
		if err != nil || code != tt.code || !strings.Contains(text, tt.text) {
			t.Errorf("%s of %q: %d %q, %v; want %d %q", tt.path, tt.user, code, text, err, tt.code, tt.text)
		}
	}
}

// TestSilentConnections: a client that connects and sends nothing is refused above
// a bound, holds no place for long, and keeps the front proxy out no longer.
func TestSilentConnections(t *testing.T) {
	r := newRig(t)
	front := r.front.TLS(t, pki.Identity{Name: "front"})
	var open []net.Conn
	for range MaxHandshakesOfOne + 100 {
		c, err := net.Dial("tcp", r.address)
		assert.NilError(t, err)
		defer func() { _ = c.Close() }()
		open = append(open, c)
	}
	closed := 0
	for _, c := range open {
		assert.NilError(t, c.SetReadDeadline(time.Now().Add(handshakeTimeout/time.Duration(len(open)))))
		if _, err := c.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
			closed++
		}
	}
	if least := 90; closed < least {
		t.Errorf("of %d silent connections %d were closed, want at least %d", len(open), closed, least)
	}
	assert.NilError(t, wait.Do(t.Context(), func(context.Context) error {
		_, _, err := r.get(t, &front, "/apis/example.com/v1", "ann")
		return err
	}))
	for i, c := range open {
		assert.NilError(t, c.SetReadDeadline(time.Now().Add(2*handshakeTimeout)))
		if _, err := c.Read(make([]byte, 1)); isTimeout(err) {
			t.Fatalf("silent connection %d stays open", i)
		}
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// fakeConn is a connection that notes its close.
type fakeConn struct {
	net.Conn
	closed bool
}

func (f *fakeConn) Close() error {
	f.closed = true
	return nil
}

// TestHandshakes: clients that say nothing close each other's connections, and neither those of an address that has
// authenticated before, nor the latest of a new one.
func TestHandshakes(t *testing.T) {
	h := newHandshakes()
	begin := func(address string) (*fakeConn, *handshake) {
		c := &fakeConn{}
		return c, h.begin(c, address)
	}
	_, first := begin("front")
	h.end(first, true)
	front, _ := begin("front")
	var silent []*fakeConn
	// Each of 40 pods has as many as it can.
	for n := range 40 * MaxHandshakesOfKnown {
		c, _ := begin("pod " + strconv.Itoa(n%40))
		silent = append(silent, c)
		if len(h.pending) > MaxHandshakes {
			t.Fatalf("%d handshakes are under way", len(h.pending))
		}
	}
	if front.closed {
		t.Error("the connection of an API server was closed")
	}
	second, late := begin("second front")
	for n := range MaxHandshakes / 2 {
		begin("pod " + strconv.Itoa(n%40))
	}
	if second.closed {
		t.Error("the connection of a new API server was closed before others that are older")
	}
	h.end(late, true)
	open := 0
	for _, c := range silent {
		if !c.closed {
			open++
		}
	}
	if open > MaxHandshakes {
		t.Errorf("%d silent connections are open", open)
	}
	for n := range 10 * maxKnown {
		_, one := begin("proxy " + strconv.Itoa(n))
		h.end(one, true)
	}
	if len(h.known) > maxKnown {
		t.Errorf("%d addresses are remembered", len(h.known))
	}
}

// TestFourPodsLeaveAPlace: pods that open connections without a word keep no API server out.
func TestFourPodsLeaveAPlace(t *testing.T) {
	r := newRig(t)
	front := r.front.TLS(t, pki.Identity{Name: "front"})
	for pod := range 4 {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(10+pod))}}
		for range 256 {
			c, err := from.DialContext(t.Context(), "tcp", r.address)
			assert.NilError(t, err)
			defer func() { _ = c.Close() }()
		}
	}
	for range 20 {
		if code, _, err := r.get(t, &front, "/apis/example.com/v1", "ann"); err != nil || code != http.StatusOK {
			t.Fatalf("the front proxy gets %d, %v", code, err)
		}
	}
}

// TestConnectionsAreBounded: the listener counts authenticated connections.
func TestConnectionsAreBounded(t *testing.T) {
	p := &proxyListener{open: bounds.Connections}
	assert.Assert(t, !p.enter(), "too many connections")
	p.release()
	assert.Assert(t, p.enter())
}

// TestStartsBeforeAPIServer: a controller that starts before the API server waits
// for it, and says so.
func TestStartsBeforeAPIServer(t *testing.T) {
	cluster, err := kubernetes.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	assert.NilError(t, err)
	logged := make(lines, 1)
	s, err := New(Options{Cluster: cluster, Log: slog.New(slog.NewTextHandler(logged, nil))})
	assert.NilError(t, err)
	serve(t, s)
	if line := <-logged; !strings.Contains(line, "extension-apiserver-authentication") {
		t.Errorf("logged: %s", line)
	}
	assert.ErrorContains(t, s.Ready(nil), "front proxy")
}

// TestReadyHasCertificate: a server that cannot finish a handshake yet is not ready, so that its Service
// does not lead to it.
func TestReadyHasCertificate(t *testing.T) {
	front := pki.ForTest(t, "authority")
	certificate := atomic.Pointer[tls.Certificate]{}
	s := newServer(t, front, func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if c := certificate.Load(); c != nil {
			return c, nil
		}
		return nil, errors.New("the Secret is not there")
	})
	serve(t, s)
	assert.NilError(t, wait.Do(t.Context(), func(context.Context) error {
		if err := s.Ready(nil); err == nil || !strings.Contains(err.Error(), "the Secret is not there") {
			return fmt.Errorf("a server without a certificate is ready, or not for its want: %w", err)
		}
		return nil
	}))
	serving := front.TLS(t, pki.Identity{Name: "server"})
	certificate.Store(&serving)
	assert.NilError(t, s.Ready(nil))
}

// lines receives the lines of a log. It drops those that the test does not read.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	select {
	case l <- string(text):
	default:
	}
	return len(text), nil
}

// TestSlowRequests: a client that sends its request's body slowly, or does not read the reply, loses its connection.
func TestSlowRequests(t *testing.T) {
	front, own := pki.ForTest(t, "authority"), pki.ForTest(t, "authority")
	serving := own.TLS(t, pki.Identity{Name: "server", Hosts: []string{"127.0.0.1"}})
	s := newServer(t, front, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil })
	s.requestTime = time.Second
	ended := make(chan error, 1)
	s.Add("slow.example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		for err == nil { // to the end of the client's buffers
			_, err = w.Write(make([]byte, 1<<20))
		}
		ended <- err
	}), "v1")
	address := serve(t, s)
	assert.NilError(t, wait.Do(t.Context(), func(context.Context) error { return s.Ready(nil) }))
	for name, request := range map[string]string{
		"an unfinished body": "POST /apis/slow.example.com/v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n1",
		"an unread reply":    "GET /apis/slow.example.com/v1 HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		conn, err := tls.Dial("tcp", address, &tls.Config{
			RootCAs: own.Pool(), MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1",
			Certificates: []tls.Certificate{front.TLS(t, pki.Identity{Name: "front"})},
		})
		assert.NilError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, request)
		assert.NilError(t, err)
		if err := <-ended; err == nil {
			t.Errorf("%s: the handler goes on", name)
		}
	}
}
