package credential

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// The keys of Secrets of type kubernetes.io/iscsi-chap, which are those of iscsid.
const (
	chapUser   = "node.session.auth.username"
	chapWord   = "node.session.auth.password" //nolint:gosec // the key of a password
	chapMutual = "node.session.auth.username_in"
)

// maxCHAP bounds CHAP's user and password, as RFC 3720 does.
const maxCHAP = 255

// CHAP returns the user and the password in a Secret of type kubernetes.io/iscsi-chap.
func CHAP(s vmspec.MountedSecret) (user, password string, err error) {
	all, err := values(s)
	if err != nil {
		return "", "", err
	}
	user, password = all[chapUser], all[chapWord]
	switch {
	case all[chapMutual] != "":
		err = errors.New("key " + chapMutual + ": QEMU does not authenticate targets; remove the key")
	case !fits(user):
		err = errors.New("key " + chapUser + ": must be one line of 1 to 255 printable characters")
	case !fits(password):
		err = errors.New("key " + chapWord + ": must be one line of 1 to 255 printable characters")
	}
	if err != nil {
		return "", "", fmt.Errorf("read Secret %s: %w", s.Name, err)
	}
	return user, password, nil
}

// fits reports whether text is a user or a password for CHAP.
func fits(text string) bool {
	return text != "" && len(text) <= maxCHAP &&
		!strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// CephKey returns the decoded key in a Secret of type kubernetes.io/rbd.
func CephKey(s vmspec.MountedSecret) (string, error) {
	all, err := values(s)
	if err != nil {
		return "", err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(all["key"]))
	if err != nil || len(key) == 0 { // the decoder's error says where, not what
		return "", fmt.Errorf("read Secret %s: key key: must be the user's key, as \"ceph auth print-key\" prints it", s.Name)
	}
	return string(key), nil
}

// values returns the values of one version of a Secret, without line ends.
func values(s vmspec.MountedSecret) (map[string]string, error) {
	all := map[string]string{}
	err := each(s, func(name, content string) error {
		all[name] = strings.TrimRight(content, "\r\n")
		return nil
	})
	return all, err
}
