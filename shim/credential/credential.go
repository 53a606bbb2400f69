// Package credential reads the mounted Secrets that hold keys and passwords of a guest's
// users, or its licenses.
//
// It owns the format of these Secrets, which is KubeVirt's, and the bounds of what is
// read. It leaves mounts and their renewal to the kubelet, and the values to its callers,
// which must not log them. No error has a password.
package credential

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// maxSecret is the largest Secret to read, in bytes. It is Kubernetes' limit.
const maxSecret = 1 << 20

// current is the kubelet's link to the folder with the files of a Secret's latest
// version.
const current = "..data"

// Version returns a text that differs between two versions of a Secret.
func Version(s vmspec.MountedSecret) (string, error) {
	version, err := os.Readlink(filepath.Join(s.Folder, current))
	if err != nil {
		return "", fmt.Errorf("read Secret %s: %w", s.Name, err)
	}
	return version, nil
}

// Value returns the value of one key of a Secret.
func Value(s vmspec.MountedSecret, key string) (string, error) {
	files, err := readFiles(s.Folder)
	if err != nil {
		return "", fmt.Errorf("read Secret %s: %w", s.Name, err)
	}
	for _, f := range files {
		if f.name == key {
			return f.content, nil
		}
	}
	return "", fmt.Errorf("read Secret %s: key %s: %w", s.Name, key, fs.ErrNotExist)
}

// Keys returns the SSH keys in a Secret, in the order of the Secret's keys. Each value
// has lines of authorized_keys.
func Keys(s vmspec.MountedSecret) ([]string, error) {
	all := []string{}
	err := each(s, func(name, content string) error {
		keys, err := vmspec.AuthorizedKeys("key "+name, content)
		all = append(all, keys...)
		return err
	})
	return all, err
}

// Passwords returns the passwords in a Secret by the names of their users.
func Passwords(s vmspec.MountedSecret) (map[string]string, error) {
	all := map[string]string{}
	err := each(s, func(name, content string) error {
		password := strings.TrimSpace(content)
		if strings.ContainsAny(password, "\n\x00") {
			return fmt.Errorf("key %s: a password is one line of text", name)
		}
		if password != "" {
			all[name] = password
		}
		return nil
	})
	return all, err
}

// each calls read with each key of one version of a Secret, and its value.
func each(s vmspec.MountedSecret, read func(name, content string) error) error {
	files, err := readFiles(s.Folder)
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", s.Name, err)
	}
	var errs []error
	for _, f := range files {
		if err := read(f.name, f.content); err != nil {
			errs = append(errs, fmt.Errorf("read Secret %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

type file struct{ name, content string }

func readFiles(folder string) ([]file, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	data, err := root.OpenRoot(current)
	if err != nil {
		return nil, err
	}
	defer data.Close()
	names, err := fs.Glob(data.FS(), "*")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []file
	left := maxSecret
	for _, name := range names {
		content, err := readFile(data, name, left)
		if err != nil {
			return nil, err
		}
		left -= len(content)
		all = append(all, file{name, content})
	}
	return all, nil
}

func readFile(in *os.Root, name string, limit int) (string, error) {
	f, err := in.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return "", err
	}
	if len(content) > limit {
		return "", fmt.Errorf("it has more than %d bytes", maxSecret)
	}
	return string(content), nil
}
