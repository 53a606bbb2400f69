package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// authorityLife and servingLife are how long certificates are valid. They are
	// replaced when a third of that time is left.
	authorityLife = 2 * 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
	// skew is how far behind ours the clock of an API server may be.
	skew = 5 * time.Minute

	blockCertificate = "CERTIFICATE"
	blockKey         = "EC PRIVATE KEY"
)

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes a certificate that signs others.
func newAuthority(now time.Time) (pair, error) {
	return issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "nodevirt-controller-ca"},
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, now, nil)
}

// newServing makes a server's certificate for a DNS name.
func newServing(name string, now time.Time, authority pair) (pair, error) {
	return issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{name},
		NotAfter:    now.Add(servingLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, now, &authority)
}

// ForServer makes the certificate of a server with DNS names, valid until a time, and that of the
// authority which signs it alone: the authority's key is dropped. All are in PEM.
func ForServer(names []string, now, until time.Time) (authority, cert, key []byte, err error) {
	a, err := issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "nodevirt-ca of " + clip(names[0])},
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, now, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: clip(names[0])},
		DNSNames:    names,
		NotAfter:    until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, now, &a)
	if err != nil {
		return nil, nil, nil, err
	}
	key, err = p.keyPEM()
	return a.certPEM(), p.certPEM(), key, err
}

// clip shortens a name to what a certificate's common name may have, with what is before it.
func clip(name string) string {
	const limit = 64 - len("nodevirt-ca of ")
	return name[:min(len(name), limit)]
}

// issue signs a certificate with a new key; without an authority by that key itself.
func issue(template *x509.Certificate, now time.Time, authority *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pair{}, fmt.Errorf("make a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore = now.Add(-skew)
	parent, signer := template, key
	if authority != nil {
		parent, signer = authority.cert, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("read the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return pair{cert: cert, key: key}, nil
}

// fresh reports whether a certificate is valid now and for a third of its life.
func fresh(cert *x509.Certificate, now time.Time) bool {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return now.After(cert.NotBefore) && now.Before(cert.NotAfter.Add(-life/3))
}

func (p pair) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: p.cert.Raw})
}

func (p pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}), nil
}

// parsePair reads a certificate, the first of its text, and its key.
func parsePair(cert, key []byte) (pair, error) {
	all, err := parseCerts(cert)
	if err != nil {
		return pair{}, err
	}
	if len(all) == 0 {
		return pair{}, errors.New("no certificate")
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return pair{}, errors.New("no key")
	}
	parsed, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return pair{}, fmt.Errorf("read the key: %w", err)
	}
	if !parsed.PublicKey.Equal(all[0].PublicKey) {
		return pair{}, errors.New("the key is not the certificate's")
	}
	return pair{cert: all[0], key: parsed}, nil
}

func parseCerts(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return all, nil
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a certificate: %w", err)
		}
		all, text = append(all, cert), rest
	}
}
