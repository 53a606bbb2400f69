package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/budget"
)

// Options are what a proxy works with.
type Options struct {
	// Exports reads VirtualMachineExports from the API server.
	Exports client.Reader
	// Dial connects to exports' Services; nil for the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  *slog.Logger
}

// Proxy is the handler of all requests.
type Proxy struct {
	exports client.Reader
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// requests counts those of each namespace.
	requests *budget.Budget
	log      *slog.Logger
}

// New returns a proxy.
func New(o Options) *Proxy {
	p := &Proxy{exports: o.Exports, dial: o.Dial, requests: budget.New("downloads", bounds.ProxyRequests, bounds.NamespaceProxyRequests), log: o.Log}
	if p.dial == nil {
		p.dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	return p
}

// ServeHTTP forwards a request, or says why it does not.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "exports can only be read", http.StatusMethodNotAllowed)
		return
	}
	r, err := parse(req.URL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if p.requests.Take(r.namespace, 1) != nil {
		unavailable(w, "too many downloads: try again later")
		return
	}
	defer p.requests.Release(r.namespace, 1)
	t, err := p.find(req.Context(), r)
	switch {
	case errors.Is(err, errNoExport):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, errNotReady):
		unavailable(w, err.Error())
	case err != nil:
		p.failed(req.Context(), r, err)
		unavailable(w, "the export cannot be read: try again later")
	default:
		p.forward(server.Steady(w), req, r, t)
	}
}

// unavailable answers that a later request may succeed.
func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// forward sends a request without its body to the export's server, and the answer to the client as it
// arrives. An answer that breaks off ends the client's connection, so that it takes no part for the whole.
func (p *Proxy) forward(w http.ResponseWriter, req *http.Request, r route, t target) {
	answer, err := p.ask(req, r, t)
	if err != nil {
		p.failed(req.Context(), r, err)
		http.Error(w, "the export's server does not answer: try again later", http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	harden(w.Header(), answer.Header, r)
	w.WriteHeader(answer.StatusCode)
	if err := stream(w, answer.Body); err != nil {
		p.failed(req.Context(), r, err)
		panic(http.ErrAbortHandler)
	}
}

// ask returns the answer of the export's server. The caller closes its body.
func (p *Proxy) ask(req *http.Request, r route, t target) (*http.Response, error) {
	out := &http.Request{
		Method: req.Method, Host: t.host, Header: http.Header{"User-Agent": {"nodevirt-export-proxy"}},
		URL: &url.URL{
			Scheme: "https", Host: net.JoinHostPort(t.host, port), Path: r.rest, RawQuery: req.URL.RawQuery,
		},
	}
	keep(out.Header, req.Header, asked())
	answer, err := p.transport(t).RoundTrip(out.WithContext(req.Context()))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("the export's server answers with status %s", answer.Status)
	}
	return answer, nil
}

// stream copies an answer's body, and holds nothing back.
func stream(w http.ResponseWriter, body io.Reader) error {
	control, buffer := http.NewResponseController(w), make([]byte, copyBuffer)
	if err := control.Flush(); err != nil { // the header
		return err
	}
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if err := control.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// failed logs why a request was not forwarded, unless its client has gone. No error has the URL, which
// may have the token.
func (p *Proxy) failed(ctx context.Context, r route, err error) {
	if ctx.Err() == nil {
		p.log.Warn("cannot forward a request", "namespace", r.namespace, "export", r.name, "err", err)
	}
}
