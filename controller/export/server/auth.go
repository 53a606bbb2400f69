package server

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
)

// ExportHeader is the header, or the parameter of the URL, in which KubeVirt's clients send the token.
const ExportHeader = "x-kubevirt-export-token"

// authorized reports whether a request has the token. The token is read each time: its owner can
// change it.
func (s *Server) authorized(r *http.Request) bool {
	token, err := s.token()
	if err != nil {
		s.log.Error("no token", "err", err)
		return false
	}
	// Sums have one length, and a comparison of them takes one time.
	given, want := sha256.Sum256([]byte(cmp.Or(r.Header.Get(ExportHeader), r.URL.Query().Get(ExportHeader)))), sha256.Sum256(token)
	return len(token) > 0 && subtle.ConstantTimeCompare(given[:], want[:]) == 1
}

// token returns the token, which may be empty.
func (s *Server) token() ([]byte, error) {
	token, err := ReadFile(s.tokenFile)
	if err != nil {
		return nil, err
	}
	return bytes.TrimSpace(token), nil
}
