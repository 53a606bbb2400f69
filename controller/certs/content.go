package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// The keys of the Secret. Those of the serving certificate are Kubernetes' own,
// of Secrets of type kubernetes.io/tls.
const (
	keyCert         = "tls.crt"
	keyKey          = "tls.key"
	keyAuthorities  = "ca.crt" // the one that signs is the first
	keyAuthorityKey = "ca.key"
)

// maxAuthorities bounds how many former authorities are kept.
const maxAuthorities = 4

// content is what the Secret holds.
type content map[string][]byte

// renewed returns content that stays valid for a while: the same content if it
// does, otherwise new content. Content that cannot be read is replaced.
func (c content) renewed(name string, now time.Time) (content, error) {
	authority, err := parsePair(c[keyAuthorities], c[keyAuthorityKey])
	known := err == nil && authority.cert.IsCA && fresh(authority.cert, now)
	if known {
		if serving, err := parsePair(c[keyCert], c[keyKey]); err == nil &&
			fresh(serving.cert, now) && signed(serving.cert, authority.cert, name, now) {
			return c, nil
		}
	} else if authority, err = newAuthority(now); err != nil {
		return nil, err
	}
	serving, err := newServing(name, now, authority)
	if err != nil {
		return nil, err
	}
	made := content{keyCert: serving.certPEM(), keyAuthorities: c.authorities(authority.cert, now)}
	if made[keyKey], err = serving.keyPEM(); err != nil {
		return nil, err
	}
	if made[keyAuthorityKey], err = authority.keyPEM(); err != nil {
		return nil, err
	}
	return made, nil
}

// authorities are the one that signs and those before it that are still good:
// another replica may serve for a while with what they signed.
func (c content) authorities(signing *x509.Certificate, now time.Time) []byte {
	bundle := pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: signing.Raw})
	before, err := parseCerts(c[keyAuthorities])
	if err != nil {
		return bundle
	}
	for i, cert := range before {
		if i < maxAuthorities && cert.IsCA && now.Before(cert.NotAfter) && !cert.Equal(signing) {
			bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})...)
		}
	}
	return bundle
}

func signed(cert, authority *x509.Certificate, name string, now time.Time) bool {
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	_, err := cert.Verify(x509.VerifyOptions{
		DNSName: name, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err == nil
}

// certificate is what to serve with.
func (c content) certificate() (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair(c[keyCert], c[keyKey])
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	return &cert, nil
}

func (c content) equal(other content) bool {
	return bytes.Equal(c[keyCert], other[keyCert]) && bytes.Equal(c[keyAuthorities], other[keyAuthorities])
}
