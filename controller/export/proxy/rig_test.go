package proxy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/controller/certs"
	"github.com/nodevirt/nodevirt/controller/export/proxy"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const (
	// path is that of the export of all rigs.
	path  = "/api/export.kubevirt.io/v1beta1/namespaces/team/virtualmachineexports/out"
	token = "correct horse"
	// service is where the proxy finds the server of the export, and front the proxy's own name.
	service = "virt-export-out.team.svc"
	front   = "virt-exportproxy.nodevirt.svc"
)

// pair is the certificate of a server, and the authority by which clients trust it.
type pair struct {
	authority []byte
	cert      tls.Certificate
}

func newPair(t *testing.T, name string) pair {
	t.Helper()
	now := time.Now()
	authority, cert, key, err := certs.ForServer([]string{name}, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	all, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{authority, all}
}

// rig is a proxy in front of one export's server, and a client outside.
type rig struct {
	*fakecluster.Cluster
	t      *testing.T
	e      *api.VirtualMachineExport
	base   string
	client *http.Client
	log    *lockedBuffer
	// backend is the address of the export's server.
	backend string

	mu     sync.Mutex
	dialed []string
}

// lockedBuffer is a log that the proxy and the test use at once.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newRig has an export that is ready, and whose server has a handler.
func newRig(t *testing.T, serve http.HandlerFunc) *rig {
	t.Helper()
	p := newPair(t, service)
	backend := httptest.NewUnstartedServer(serve)
	backend.TLS = &tls.Config{Certificates: []tls.Certificate{p.cert}}
	backend.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	backend.StartTLS()
	t.Cleanup(backend.Close)
	return newRigOf(t, backend.Listener.Addr().String(), p.authority)
}

// newRigOf has an export whose server is at an address.
func newRigOf(t *testing.T, backend string, authority []byte) *rig {
	t.Helper()
	g := &rig{t: t, backend: backend, log: new(lockedBuffer)}
	g.Cluster = fakecluster.New(t, fakecluster.Options{Types: []func(*runtime.Scheme) error{api.AddToScheme}})
	g.e = &api.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "out"}}
	g.e.Status = &api.VirtualMachineExportStatus{Phase: api.Ready, ServiceName: "virt-export-out", Links: &api.VirtualMachineExportLinks{
		Internal: &api.VirtualMachineExportLink{Cert: string(authority)},
	}}
	g.Add(t, g.e)
	p := proxy.New(proxy.Options{Exports: g.Cached(), Dial: g.dial, Log: slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := newPair(t, front)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- proxy.Serve(ctx, l, p, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own.cert, nil })
	}()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(own.authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: front}, DisableCompression: true}
	g.base = "https://" + l.Addr().String()
	g.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return g
}

// dial is the cluster's network: all Services are one server.
func (g *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	g.mu.Lock()
	g.dialed = append(g.dialed, address)
	g.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, g.backend)
}

// addresses returns to what the proxy has connected.
func (g *rig) addresses() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.dialed)
}

// ask sends a request; header are pairs.
func (g *rig) ask(method, path string, header ...string) *http.Response {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), method, g.base+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	answer, err := g.client.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// expect wants a status, and returns the body.
func (g *rig) expect(status int, path string, header ...string) string {
	g.t.Helper()
	answer := g.ask(http.MethodGet, path, header...)
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		g.t.Errorf("%s: %s, %v: %s; want %d", path, answer.Status, err, body, status)
	}
	return string(body)
}
