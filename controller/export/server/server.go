package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/callers"
)

const (
	// headerTimeout bounds the handshake and a request's header, idleTimeout the time between two
	// requests, stall the time in which a client reads nothing.
	headerTimeout = 10 * time.Second
	idleTimeout   = 30 * time.Second
	stall         = time.Minute
	// stopTimeout is how long transfers may go on after the server has got a signal to end.
	stopTimeout = 3 * time.Second
	maxHeader   = 16 << 10
)

// PathReady is the path of the kubelet's probe.
const PathReady = "/readyz"

// Server serves one export.
type Server struct {
	config    Config
	volumes   []*volume
	manifests map[From][]json.RawMessage
	tokenFile string
	// transfers has an entry for each transfer that is under way.
	transfers chan struct{}
	log       *slog.Logger
}

// New opens the volumes that a config below dir names. The caller closes the server.
func New(dir string, log *slog.Logger) (*Server, error) {
	s := &Server{
		tokenFile: filepath.Join(dir, TokenFolder, FileToken), transfers: make(chan struct{}, bounds.ExportTransfers), log: log,
		manifests: map[From][]json.RawMessage{},
	}
	var err error
	if s.config, err = ReadConfig(dir); err != nil {
		return nil, err
	}
	for from, file := range s.config.manifestFiles() {
		var objects []json.RawMessage
		if err := readJSON(filepath.Join(dir, ServerFolder, file), &objects); err != nil {
			return nil, fmt.Errorf("read the export's manifests: %w", err)
		}
		s.manifests[from] = objects
	}
	for _, v := range s.config.Volumes {
		opened, err := openVolume(v)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.volumes = append(s.volumes, opened)
	}
	return s, nil
}

// Close closes the volumes.
func (s *Server) Close() {
	for _, v := range s.volumes {
		v.close()
	}
}

// Run serves the export that is below dir on [Port] until the context ends.
func Run(ctx context.Context, dir string, log *slog.Logger) error {
	s, err := New(dir, log)
	if err != nil {
		return err
	}
	defer s.Close()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, ServerFolder, FileCertificate), filepath.Join(dir, ServerFolder, FileKey))
	if err != nil {
		return fmt.Errorf("read the server's certificate: %w", err)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", ":"+strconv.Itoa(Port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	log.Info("serving", "export", s.config.Name, "volumes", len(s.volumes))
	return s.Serve(ctx, l, pair)
}

// Serve serves on a listener until the context ends, and closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener, pair tls.Certificate) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // each transfer then has a connection, and that a deadline
	server := &http.Server{
		Handler:           s.Handler(),
		Protocols:         &protocols,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, WriteTimeout: stall, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(late) != nil {
			_ = server.Close()
		}
	})
	defer stop()
	err := server.ServeTLS(callers.Limit(l, bounds.ExportConnections).Prepare(server), "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathReady, func(http.ResponseWriter, *http.Request) {})
	for _, v := range s.volumes {
		for _, f := range formats() {
			if f.of(v.Volume) {
				mux.Handle("GET "+f.path(v.Volume), s.guarded(s.transfer(func(w http.ResponseWriter, r *http.Request) error {
					return f.serve(v, w, r)
				})))
			}
		}
	}
	for path, serve := range s.backupHandlers() {
		mux.Handle("GET "+path, s.guarded(s.transfer(serve)))
	}
	for _, from := range []From{Internal, External} {
		handlers := map[api.ExportManifestType]handler{api.AllManifests: serveManifests(s.manifests[from]), api.AuthHeader: s.serveSecret}
		for kind, path := range s.config.Paths(from) {
			mux.Handle("GET "+path, s.guarded(handlers[kind]))
		}
	}
	return mux
}

// handler serves a request, or returns why it cannot.
type handler func(http.ResponseWriter, *http.Request) error

// transfer limits how many requests are served at once.
func (s *Server) transfer(serve handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		select {
		case s.transfers <- struct{}{}:
		default:
			w.Header().Set("Retry-After", "5")
			http.Error(w, "too many downloads: try again later", http.StatusServiceUnavailable)
			return nil
		}
		defer func() { <-s.transfers }()
		return serve(w, r)
	}
}

// guarded serves requests that have the token, and reports failures: by a status, or by the end of
// the connection if a part was sent.
func (s *Server) guarded(serve handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.authorized(r) {
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		// A guest wrote the content: a browser must not run it.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "sandbox")
		answer := newSteady(w)
		err := serve(answer, r)
		if err == nil {
			return
		}
		s.log.Error("request failed", "path", r.URL.Path, "err", err)
		switch {
		case answer.began:
			panic(http.ErrAbortHandler)
		case errors.Is(err, fs.ErrNotExist):
			http.Error(w, "the volume has no "+diskFile+": start its VM once", http.StatusNotFound)
		default:
			http.Error(w, "the volume cannot be read", http.StatusInternalServerError)
		}
	})
}
