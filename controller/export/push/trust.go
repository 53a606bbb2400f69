package push

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/nodevirt/nodevirt/controller/export/server"
)

// transport returns how registries are reached. The pod's image has no certificates: those of public
// authorities are a part of the program, and the Secret may add others.
func transport(dir string) (http.RoundTripper, error) {
	pool, err := authorities()
	if err != nil {
		return nil, err
	}
	more, err := server.ReadFile(filepath.Join(dir, server.PushFolder, fileAuthority))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read the push Secret: %w", err)
	case !pool.AppendCertsFromPEM(more):
		return nil, fmt.Errorf("decode %s of the push Secret: no certificate in PEM", fileAuthority)
	}
	base, is := remote.DefaultTransport.(*http.Transport)
	if !is {
		return nil, errors.New("connect to a registry: the library's transport is not one of HTTP")
	}
	t := base.Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// authorities returns the certificates of public authorities.
func authorities() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for root := range bundle.Roots() {
		cert, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("decode the certificates of public authorities: %w", err)
		}
		if root.Constraint != nil {
			pool.AddCertWithConstraint(cert, root.Constraint)
		} else {
			pool.AddCert(cert)
		}
	}
	return pool, nil
}
