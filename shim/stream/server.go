package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/callers"
)

const (
	// headerTime bounds how long a client may take to send its request's header.
	headerTime = 10 * time.Second
	maxHeader  = 64 << 10
)

// Options configure a Server. All fields are required.
type Options struct {
	// Address is the address to listen on, HOST:PORT on loopback; port 0 selects a free port.
	Address string
	// IdleTimeout closes a connection without traffic in either direction for that
	// long; 0 is never.
	IdleTimeout time.Duration
	Machines    machines
	Logger      *slog.Logger
}

// Server creates URLs for streams and serves them.
type Server struct {
	listener *listener
	streams  streaming.Server
	http     *http.Server
	runtime  *runtime
}

// Listen opens the address and returns a Server, which answers once [Server.Serve]
// runs. The caller must close it.
func Listen(ctx context.Context, o Options) (*Server, error) {
	tcp, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("serve streams: %w: choose another stream.address", err)
	}
	ending, end := context.WithCancel(context.WithoutCancel(ctx))
	calls := callers.Limit(tcp, bounds.StreamConnections)
	s := &Server{
		listener: &listener{Listener: calls, conns: map[*conn]struct{}{}},
		runtime:  &runtime{machines: o.Machines, ending: ending, end: end},
	}
	config := streaming.DefaultConfig
	config.StreamIdleTimeout = o.IdleTimeout
	config.BaseURL = &url.URL{Scheme: "http", Host: tcp.Addr().String()}
	if s.streams, err = streaming.NewServer(config, s.runtime); err != nil {
		end()
		return nil, errors.Join(fmt.Errorf("serve streams: %w", err), tcp.Close())
	}
	s.http = &http.Server{
		Handler:           s.streams,
		ReadHeaderTimeout: headerTime,
		MaxHeaderBytes:    maxHeader,
		IdleTimeout:       headerTime,
		ConnContext:       within,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	calls.Prepare(s.http)
	return s, nil
}

// Address returns the address that the server listens on, HOST:PORT.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Serve answers until Close.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve streams: %w", err)
	}
	return nil
}

// Close disconnects the clients and returns when their requests have ended.
func (s *Server) Close() error {
	s.runtime.stop()
	err := s.http.Close()
	s.listener.closeAll()
	s.runtime.calls.Wait()
	if err = errors.Join(err, ignoreClosed(s.listener.Close())); err != nil {
		return fmt.Errorf("end the streams: %w", err)
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Exec returns a URL for a command in a container. Requests must have full IDs.
func (s *Server) Exec(r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return s.streams.GetExec(r)
}

// Attach returns a URL for a container's console.
func (s *Server) Attach(r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return s.streams.GetAttach(r)
}

// PortForward returns a URL for a sandbox's ports.
func (s *Server) PortForward(r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return s.streams.GetPortForward(r)
}
