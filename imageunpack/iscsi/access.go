package iscsi

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"

	"github.com/google/renameio/v2"
)

// Access has a target's name and the credentials for it, all of which an initiator needs. Name and
// Initiator are iSCSI names (RFC 3720, 3.2.6); User and Password are for CHAP.
type Access struct {
	Name      string `json:"target"`
	Initiator string `json:"initiator"`
	User      string `json:"user"`
	Password  Secret `json:"password"`
}

// Secret is text that is never printed or logged. JSON contains it only if the caller puts the result
// of [Secret.Reveal] there.
type Secret struct{ text string }

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text.
func (s Secret) Reveal() string { return s.text }

// String implements fmt.Stringer.
func (Secret) String() string { return "[secret]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[secret]" }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// MarshalText returns an error, so that no secret is written by accident.
func (Secret) MarshalText() ([]byte, error) {
	return nil, errors.New("a secret can't be marshalled")
}

// names matches names that tgtd and libvirt both accept; words matches CHAP's user and password,
// which must not contain a comma.
var (
	names = regexp.MustCompile(`^iqn\.[a-z0-9.:-]{1,200}$`)
	words = regexp.MustCompile(`^[A-Za-z0-9]{12,128}$`)
)

// Check returns an error for names that tgtd or libvirtd could misread.
func (a Access) Check() error {
	switch {
	case !names.MatchString(a.Name):
		return fmt.Errorf("%q is not an iSCSI name of a target", a.Name)
	case !names.MatchString(a.Initiator):
		return fmt.Errorf("%q is not an iSCSI name of an initiator", a.Initiator)
	case !words.MatchString(a.User) || !words.MatchString(a.Password.Reveal()):
		return errors.New("CHAP's user and password must have 12 to 128 letters and digits")
	}
	return nil
}

// Key is the secret from which the accesses of a node are derived. It is in one file, so that no record
// holds a password, and the passwords stay the same after a restart.
type Key struct{ secret []byte }

const keySize = 32

// OpenKey reads the key in a file. If there is none, it creates one that only the owner can read.
func OpenKey(path string) (Key, error) {
	secret, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret = make([]byte, keySize)
		rand.Read(secret) // never fails
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return Key{}, fmt.Errorf("create the key of the iSCSI passwords: %w", err)
		}
		err = renameio.WriteFile(path, secret, 0o600)
	}
	if err != nil {
		return Key{}, fmt.Errorf("read the key of the iSCSI passwords: %w", err)
	}
	if len(secret) != keySize {
		return Key{}, fmt.Errorf("the key of the iSCSI passwords, %s, has %d bytes instead of %d: remove it "+
			"while no VM has a disk over iSCSI, and a new one is made", path, len(secret), keySize)
	}
	return Key{secret}, nil
}

// Authority is the beginning of the names of targets and initiators.
const Authority = "iqn.2026-11.io.nodevirt:"

// Access derives the access of a disk, whose id must never be another disk's on this node. It can't be
// guessed without the key, nor from the Access of another id.
func (k Key) Access(id string) Access {
	return Access{
		Name:      Authority + k.derive(id, "target")[:32],
		Initiator: Authority + "by." + k.derive(id, "initiator")[:32],
		User:      k.derive(id, "user")[:24],
		Password:  Secret{k.derive(id, "password")[:48]},
	}
}

func (k Key) derive(id, use string) string {
	h := hmac.New(sha256.New, k.secret)
	fmt.Fprintf(h, "%d %s %s", len(use), use, id)
	return hex.EncodeToString(h.Sum(nil))
}
