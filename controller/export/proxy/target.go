package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	api "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// port is the port of exports' Services.
	port = "443"
	// findTimeout bounds the read of an export, and connectTimeout a connection and its handshake.
	findTimeout    = 10 * time.Second
	connectTimeout = 10 * time.Second
	// stall is the time in which an export's server sends nothing.
	stall = time.Minute
)

// The reasons why an export has no server.
var (
	errNoExport = errors.New("the export does not exist")
	errNotReady = errors.New("the export is not ready")
)

// target is the server of an export.
type target struct {
	host string
	// roots has the one authority of the server's certificate.
	roots *x509.CertPool
}

// find returns the server of a ready export.
func (p *Proxy) find(ctx context.Context, r route) (target, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	e := new(api.VirtualMachineExport)
	err := p.exports.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: r.name}, e)
	if apierrors.IsNotFound(err) {
		return target{}, errNoExport
	}
	if err != nil {
		return target{}, err
	}
	s := e.Status
	if s == nil || s.Phase != api.Ready || s.Links == nil || s.Links.Internal == nil {
		return target{}, errNotReady
	}
	t := target{host: s.ServiceName + "." + r.namespace + ".svc", roots: x509.NewCertPool()}
	// Only the controller writes statuses. A label can name nothing but a Service of the export's namespace.
	if len(validation.IsDNS1035Label(s.ServiceName)) > 0 || !t.roots.AppendCertsFromPEM([]byte(s.Links.Internal.Cert)) {
		return target{}, errNotReady
	}
	return t, nil
}

// transport returns what sends a request to a server. It keeps no connections: each export has another
// certificate.
func (p *Proxy) transport(t target) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := p.dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return steadyConn{c}, nil
		},
		Protocols:           &protocols,
		TLSClientConfig:     &tls.Config{RootCAs: t.roots, ServerName: t.host, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: stall,
		MaxResponseHeaderBytes: maxHeader, DisableKeepAlives: true, DisableCompression: true,
	}
}

// steadyConn is a connection whose other end must send and read: one that does neither for [stall] ends.
type steadyConn struct{ net.Conn }

func (c steadyConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c steadyConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
