package pki

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
)

// ForTest returns an authority for a test, which ends if there is none.
func ForTest(t testing.TB, name string) *Authority {
	t.Helper()
	a, err := NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TLS returns a new certificate for a TLS server or client of a test, which ends if there is none.
func (a *Authority) TLS(t testing.TB, id Identity) tls.Certificate {
	t.Helper()
	pair, err := a.Issue(id)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// PEM returns the authority's own certificate.
func (a *Authority) PEM() []byte { return encodeCertificate(a.cert.Raw) }

// Pool returns the roots of those who trust this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}
