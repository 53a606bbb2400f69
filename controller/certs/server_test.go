package certs

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"
)

// TestForServer: clients that trust the authority alone trust the server, by its names and until
// its end.
func TestForServer(t *testing.T) {
	now := time.Now()
	names := []string{strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + ".svc", "short"}
	authority, cert, key, err := ForServer(names, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatal("no authority")
	}
	verify := func(name string, at time.Time) error {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: at})
		return err
	}
	for _, name := range names {
		if err := verify(name, now); err != nil {
			t.Error(err)
		}
	}
	if verify("other", now) == nil || verify("short", now.Add(2*time.Hour)) == nil {
		t.Error("it is of other names or times too")
	}
	if len(pair.Leaf.Subject.CommonName) > 64 {
		t.Errorf("common name %s", pair.Leaf.Subject.CommonName)
	}
}
