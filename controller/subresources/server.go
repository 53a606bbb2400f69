package subresources

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/api"
)

// Options are what the server is made of.
type Options struct {
	// Address is where to listen, HOST:PORT.
	Address string
	// Certificate is the server's, at the time of a handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Config is of the controller's own account.
	Config *rest.Config
	// Scheme has the objects that are read and written.
	Scheme *runtime.Scheme
	// Version is the controller's.
	Version string
	Log     *slog.Logger
}

// Server is the API.
type Server struct {
	Options
	front *frontProxy
	// cluster asks what callers may do, and is the way into pods.
	cluster kubernetes.Interface
	// objects reads and writes at the API server: what a person asks for now is not decided by what a
	// cache has heard of, and a replica that doesn't lead has no cache to wait in for what it wrote.
	objects client.Client
	// serving is set once the server can identify callers.
	serving atomic.Bool
}

// Bounds of a connection's beginning. Its end is the caller's affair: a console stays open for days.
const (
	headerTimeout = 30 * time.Second
	stopTimeout   = 5 * time.Second
)

// New returns a Server that does nothing yet.
func New(o Options) (*Server, error) {
	config := rest.CopyConfig(o.Config)
	config.QPS = -1 // callers wait for the API server alone: its priority and fairness decide
	cluster, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up the subresources' API: %w", err)
	}
	objects, err := client.New(config, client.Options{Scheme: o.Scheme, Mapper: api.NewMapper(o.Scheme)})
	if err != nil {
		return nil, fmt.Errorf("set up the subresources' API: %w", err)
	}
	front, err := newFrontProxy(cluster)
	if err != nil {
		return nil, fmt.Errorf("set up the subresources' API: %w", err)
	}
	return &Server{Options: o, front: front, cluster: cluster, objects: objects}, nil
}

// Ready is a health check. It fails until the server accepts calls.
func (s *Server) Ready(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("the API server has not published its front proxy's authority yet")
	}
	return nil
}

// NeedLeaderElection says that each of several controllers serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("serve subresources: %w", err)
	}
	return s.Serve(ctx, listener)
}

// Serve is Start with a listener, which it closes.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	if s.front.start(ctx, s.Log) != nil { // it is to stop
		return listener.Close()
	}
	s.serving.Store(true)
	server := &http.Server{
		Handler: s.routes(), ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug), // scanners and probes fail handshakes
		// The server requests the proxy's certificate, and checks it when a client presents one.
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: s.Certificate, ClientAuth: tls.RequestClientCert,
			NextProtos: []string{"http/1.1"}, // a WebSocket takes the connection over
		},
	}
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_ = server.Shutdown(ctx) // consoles end with their requests' context
	})
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve subresources: %w", err)
	}
	return nil
}
