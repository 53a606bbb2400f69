package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	api "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/callers"
)

// Flag is the argument by which nodevirt-controller is the export proxy; the certificate's folder follows.
const Flag = "-export-proxy"

// Port is the port on which the proxy listens in its pod.
const Port = 8443

const (
	// headerTimeout bounds the handshake and a request's header, idleTimeout the time between two requests.
	// answerTimeout bounds how long a client reads nothing.
	headerTimeout = 10 * time.Second
	idleTimeout   = 30 * time.Second
	answerTimeout = 2 * time.Minute
	maxHeader     = 16 << 10
	// copyBuffer is how much of an answer is read at once, in bytes.
	copyBuffer = 64 << 10
	// stopTimeout is how long downloads may go on after a signal to end.
	stopTimeout = 25 * time.Second
	// reads and readBurst bound the reads of exports, each second and at once.
	reads     = 50
	readBurst = 100
)

// Run serves with the certificate in a folder until the context ends. It answers probes at an address.
func Run(ctx context.Context, config *rest.Config, folder, probes string, log *slog.Logger) error {
	exports, err := newReader(config)
	if err != nil {
		return err
	}
	cert := &certificate{folder: folder, log: log}
	if err := cert.load(); err != nil {
		return err
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", ":"+strconv.Itoa(Port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		return Serve(ctx, l, New(Options{Exports: exports, Log: log}), cert.get)
	})
	all.Go(func() error {
		cert.follow(ctx)
		return nil
	})
	if probes != "" && probes != "0" {
		all.Go(func() error { return answerProbes(ctx, probes) })
	}
	return all.Wait()
}

// newReader returns a reader of exports, which has no cache and needs no right but "get".
func newReader(config *rest.Config) (client.Reader, error) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make the scheme: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(api.SchemeGroupVersion.WithKind("VirtualMachineExport"), meta.RESTScopeNamespace)
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = reads, readBurst
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("set up the client of exports: %w", err)
	}
	return c, nil
}

// Serve serves on a listener until the context ends, and closes the listener.
func Serve(ctx context.Context, l net.Listener, p *Proxy, cert func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	s := newServer(p, p.log)
	s.TLSConfig = &tls.Config{GetCertificate: cert, MinVersion: tls.VersionTLS12}
	defer stopWith(ctx, s)()
	return ended(s.ServeTLS(callers.Limit(l, bounds.ProxyConnections).Prepare(s), "", ""))
}

// answerProbes answers the kubelet at another port: clients cannot take its connections.
func answerProbes(ctx context.Context, address string) error {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.HandleFunc("GET "+path, func(http.ResponseWriter, *http.Request) {})
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	s := newServer(mux, slog.New(slog.DiscardHandler))
	defer stopWith(ctx, s)()
	return ended(s.Serve(l))
}

func newServer(h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // each download then has a connection, and that a deadline
	return &http.Server{
		Handler: h, Protocols: &protocols, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, WriteTimeout: answerTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// stopWith ends a server with the context, after its requests or [stopTimeout].
func stopWith(ctx context.Context, s *http.Server) (undo func() bool) {
	return context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if s.Shutdown(late) != nil {
			_ = s.Close()
		}
	})
}

// ended returns why a server ended, unless it was stopped.
func ended(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}
