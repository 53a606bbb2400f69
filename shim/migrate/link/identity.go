package link

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// ErrStranger is returned for a peer with another certificate than the expected one.
var ErrStranger = errors.New("the peer's certificate is not this migration's")

// Fingerprint is the SHA-256 of a certificate.
type Fingerprint [sha256.Size]byte

func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// ParseFingerprint parses what [Fingerprint.String] returns.
func ParseFingerprint(s string) (Fingerprint, error) {
	var f Fingerprint
	if hex.DecodedLen(len(s)) != len(f) {
		return f, fmt.Errorf("fingerprint has %d characters, want %d", len(s), hex.EncodedLen(len(f)))
	}
	if _, err := hex.Decode(f[:], []byte(s)); err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint: %w", err)
	}
	return f, nil
}

// Identity is one end's key and certificate for one migration.
type Identity struct{ certificate tls.Certificate }

// NewIdentity makes an identity. The certificate's names and dates have no meaning: the
// peer compares the whole certificate.
func NewIdentity() (Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Identity{}, fmt.Errorf("make a migration's key: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return Identity{}, fmt.Errorf("make a migration's certificate: %w", err)
	}
	return Identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// Fingerprint returns what the peer must know.
func (i Identity) Fingerprint() Fingerprint { return sha256.Sum256(i.certificate.Certificate[0]) }

// config returns the settings of either end. TLS proves that the peer has the key of its
// certificate; the check of the certificate replaces that of names and authorities.
func (i Identity) config(peer Fingerprint) *tls.Config {
	return &tls.Config{
		Certificates:           []tls.Certificate{i.certificate},
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, //nolint:gosec // VerifyConnection compares the whole certificate
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 {
				return ErrStranger
			}
			got := sha256.Sum256(s.PeerCertificates[0].Raw)
			if subtle.ConstantTimeCompare(got[:], peer[:]) != 1 {
				return ErrStranger
			}
			return nil
		},
	}
}
