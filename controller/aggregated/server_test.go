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
	for range maxHandshakesOfOne + 100 {
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

// TestBounds: the listener counts handshakes for each address, and connections.
func TestBounds(t *testing.T) {
	p := &proxyListener{pending: map[string]int{}}
	for range maxHandshakesOfOne {
		assert.Assert(t, p.admit("a"))
	}
	assert.Assert(t, !p.admit("a"), "one address has too many handshakes")
	assert.Assert(t, p.admit("b"), "another address has its own bound")
	assert.Assert(t, p.settle("a", false) == false)
	assert.Assert(t, p.admit("a"), "a finished handshake counts no longer")
	for i := 0; p.pending[""] < maxHandshakes; i++ {
		assert.Assert(t, p.admit("other "+strconv.Itoa(i)))
	}
	assert.Assert(t, !p.admit("last"))
	p.open = maxConnections
	assert.Assert(t, !p.settle("b", true), "too many connections")
	p.release()
	assert.Assert(t, p.settle("other 0", true))
	for address, n := range p.pending {
		if address != "" && n == 0 {
			t.Errorf("address %q is still counted", address)
		}
	}
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
			return fmt.Errorf("a server without a certificate is ready, or not for its want: %v", err)
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
