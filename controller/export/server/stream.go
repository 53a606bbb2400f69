package server

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"time"
)

// steady is an answer that a client must keep reading: one that reads nothing for [stall] loses its
// connection.
type steady struct {
	http.ResponseWriter
	control *http.ResponseController
	// began says that the client has got a part.
	began bool
}

// Steady returns an answer whose client must keep reading, as the server's own must.
func Steady(w http.ResponseWriter) http.ResponseWriter { return newSteady(w) }

func newSteady(w http.ResponseWriter) *steady {
	return &steady{ResponseWriter: w, control: http.NewResponseController(w)}
}

func (s *steady) Write(p []byte) (int, error) {
	s.began = true
	if err := s.control.SetWriteDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return s.ResponseWriter.Write(p)
}

// Unwrap lets an [http.ResponseController] flush what was written.
func (s *steady) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *steady) WriteHeader(status int) {
	s.began = true
	s.ResponseWriter.WriteHeader(status)
}

// serveRaw serves a disk as it is, also parts of it.
func serveRaw(v *volume, w http.ResponseWriter, r *http.Request) error {
	f, err := v.disk()
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, f)
	return nil
}

// serveGzip serves a disk compressed.
func serveGzip(v *volume, w http.ResponseWriter, r *http.Request) error {
	f, err := v.disk()
	if err != nil {
		return err
	}
	defer f.Close()
	return compressed(w, r, func(to io.Writer) error {
		_, err := io.CopyBuffer(to, struct{ io.Reader }{f}, make([]byte, copyBuffer))
		return err
	})
}

// copyBuffer is how much of a disk is read at once, in bytes.
const copyBuffer = 256 << 10

// compressed serves what a function writes.
func compressed(w http.ResponseWriter, r *http.Request, write func(io.Writer) error) error {
	w.Header().Set("Content-Type", "application/gzip")
	if r.Method == http.MethodHead {
		return nil
	}
	// Disks are mostly zeros: a better compression takes much longer, and saves little.
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := write(z); err != nil {
		return err
	}
	return z.Close()
}
