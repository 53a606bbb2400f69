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

// Access is how a target is called and who may log in: all of it is needed to use the disk. Name
// and Initiator are iSCSI names (RFC 3720, 3.2.6); User and Password are for CHAP.
type Access struct {
	Name      string `json:"target"`
	Initiator string `json:"initiator"`
	User      string `json:"user"`
	Password  Secret `json:"password"`
}

// Secret is text that is not printed or logged, and that JSON holds only where [Secret.Reveal] put
// it there.
type Secret struct{ text string }

// NewSecret makes text a Secret.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal is the text.
func (s Secret) Reveal() string { return s.text }

// String implements fmt.Stringer.
func (Secret) String() string { return "[secret]" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "[secret]" }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// MarshalText refuses to write a secret down by accident.
func (Secret) MarshalText() ([]byte, error) {
	return nil, errors.New("a secret is not written down")
}

// names are what tgtd and libvirt both take; words are those of CHAP, which must not hold a comma.
var (
	names = regexp.MustCompile(`^iqn\.[a-z0-9.:-]{1,200}$`)
	words = regexp.MustCompile(`^[A-Za-z0-9]{12,128}$`)
)

// Check refuses what tgtd or libvirtd could take for something else.
func (a Access) Check() error {
	switch {
	case !names.MatchString(a.Name):
		return fmt.Errorf("%q is no iSCSI name of a target", a.Name)
	case !names.MatchString(a.Initiator):
		return fmt.Errorf("%q is no iSCSI name of an initiator", a.Initiator)
	case !words.MatchString(a.User) || !words.MatchString(a.Password.Reveal()):
		return errors.New("CHAP's user and password have 12 to 128 letters and digits")
	}
	return nil
}

// Key is what the accesses of one node are derived from. With it in one file, no record and no
// table has to hold a password, and all of them are the same after a restart.
type Key struct{ secret []byte }

const keySize = 32

// OpenKey reads the key in a file, or makes one that only the file's owner can read.
func OpenKey(path string) (Key, error) {
	secret, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret = make([]byte, keySize)
		rand.Read(secret) // never fails
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return Key{}, fmt.Errorf("make the key of iSCSI's passwords: %w", err)
		}
		err = renameio.WriteFile(path, secret, 0o600)
	}
	if err != nil {
		return Key{}, fmt.Errorf("read the key of iSCSI's passwords: %w", err)
	}
	if len(secret) != keySize {
		return Key{}, fmt.Errorf("the key of iSCSI's passwords, %s, has %d bytes and not %d: remove it "+
			"while no VM has a disk over iSCSI, and a new one is made", path, len(secret), keySize)
	}
	return Key{secret}, nil
}

// Authority begins the names of targets and initiators.
const Authority = "iqn.2026-11.io.nodevirt:"

// Access derives what belongs to a disk, of which id is the name on this node for ever: none of it
// can be guessed without the key, or from an Access of another id.
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
