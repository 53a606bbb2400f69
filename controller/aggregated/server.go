package aggregated

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// Options configure a server.
type Options struct {
	// Address is where to listen, HOST:PORT.
	Address string
	// Certificate returns the server's certificate at the time of a handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Cluster reads the description of the front proxy.
	Cluster kubernetes.Interface
	Log     *slog.Logger
}

// Server serves API groups to the API server's front proxy. All replicas of a
// controller run one.
type Server struct {
	options Options
	front   *frontProxy
	mux     *http.ServeMux
	groups  []metav1.APIGroup
	openapi openapi
	// requestTime bounds a request and its reply; [bounds.RequestTime].
	requestTime time.Duration
	// serving is set once the server can identify the front proxy.
	serving atomic.Bool
}

const (
	// headerTimeout bounds the time until a request's header has arrived.
	headerTimeout = 10 * time.Second
	// idleTimeout is the time after which a connection without a request is closed.
	// The API server reuses connections; a new one costs a handshake.
	idleTimeout = 2 * time.Minute
	// maxHeader bounds a request's header, in bytes. A user may be in many groups.
	maxHeader   = 256 << 10
	stopTimeout = 5 * time.Second
)

// New returns a server without groups.
func New(o Options) (*Server, error) {
	front, err := newFrontProxy(o.Cluster)
	if err != nil {
		return nil, fmt.Errorf("set up the aggregated API: %w", err)
	}
	s := &Server{options: o, front: front, mux: http.NewServeMux(), requestTime: bounds.RequestTime}
	s.mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		Reply(w, http.StatusOK, metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.groups,
		})
	})
	s.mux.Handle("GET /openapi/v2", &s.openapi)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { notFound(w, r) })
	return s, nil
}

// Add serves a group: the handler receives all requests below /apis/NAME/. The
// preferred version is the first. Call it before Start.
func (s *Server) Add(name string, handler http.Handler, versions ...string) {
	group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
	for _, v := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	s.groups = append(s.groups, group)
	s.mux.HandleFunc("GET /apis/"+name, func(w http.ResponseWriter, _ *http.Request) { Reply(w, http.StatusOK, group) })
	s.mux.Handle("/apis/"+name+"/", handler)
}

// Describe adds paths to the OpenAPI document, version 2, from which the API server
// makes version 3, too. Call it before Start.
func (s *Server) Describe(paths map[string]any) { s.openapi.add(paths) }

// Caller returns the user whom the front proxy names in a request. It fails if the
// request names none.
func (s *Server) Caller(r *http.Request) (user.Info, error) { return s.front.caller(r) }

// Ready is a health check. It fails until the server accepts requests: without a certificate each
// handshake fails.
func (s *Server) Ready(*http.Request) error {
	if !s.serving.Load() || !s.front.known() {
		return errors.New("the API server has not published its front proxy's authority yet")
	}
	if _, err := s.options.Certificate(&tls.ClientHelloInfo{}); err != nil {
		return fmt.Errorf("no certificate to serve with: %w", err)
	}
	return nil
}

// NeedLeaderElection returns false: each replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("serve the aggregated API: %w", err)
	}
	return s.Serve(ctx, listener)
}

// Serve is Start with a listener, which it closes.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	if s.front.start(ctx, s.options.Log) != nil { // ctx has ended
		return listener.Close()
	}
	proxied := newProxyListener(ctx, listener, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: s.options.Certificate,
		ClientAuth: tls.RequireAnyClientCert, VerifyConnection: s.front.verify,
		NextProtos: []string{"http/1.1"}, // WebSocket handlers hijack the connection
	})
	server := &http.Server{
		Handler:           s.mux,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ReadTimeout: s.requestTime, WriteTimeout: s.requestTime, // a stream's handler, which takes the connection over, ends both
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_ = server.Shutdown(ctx) // hijacked connections end with their requests' context
	})
	defer stop()
	s.serving.Store(true)
	defer s.serving.Store(false)
	if err := server.Serve(proxied); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the aggregated API: %w", err)
	}
	return nil
}
