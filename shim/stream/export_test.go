package stream

import "net/http"

// Handler answers requests without a connection.
func (s *Server) Handler() http.Handler { return s.http.Handler }
