package bundle

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// The layers of Debian's packages, from the lowest to the highest.
const (
	libraries = "libraries"
	node      = "node"
	aarch64   = "aarch64"
)

// Package is a package of a lock file.
type Package struct {
	Layer, Name, Version string
	Archive              string // main or security
	Path                 string // below the archive's address
	SHA256               string // of the package's file, in hex
}

// Architectures returns the architectures that have a lock file.
func Architectures() []string { return []string{"amd64", "arm64"} }

// Lists is the folder of the lists that say what is in a bundle: deploy/bundle/lists.
type Lists struct{ fs.FS }

// LockFile returns the name of an architecture's lock file among the lists.
func LockFile(architecture string) string { return architecture + ".lock" }

// Lock returns the packages of an architecture's bundle.
func (l Lists) Lock(architecture string) ([]Package, error) {
	var packages []Package
	err := l.lines(LockFile(architecture), func(fields []string) error {
		if len(fields) != 6 {
			return fmt.Errorf("want 6 fields, got %d", len(fields))
		}
		packages = append(packages, Package{fields[0], fields[1], fields[2], fields[3], fields[4], fields[5]})
		return nil
	})
	return packages, err
}

// WriteLock writes a lock file.
func WriteLock(w io.Writer, packages []Package) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "# The packages of the bundle: LAYER NAME VERSION ARCHIVE PATH SHA256. make bundle-update writes this file.")
	for _, p := range packages {
		fmt.Fprintln(b, p.Layer, p.Name, p.Version, p.Archive, p.Path, p.SHA256)
	}
	return b.Flush()
}

// request is a line of the list "packages".
type request struct{ layer, name, architecture string }

// requests returns what an architecture's bundle is asked for.
func (l Lists) requests(architecture string) ([]request, error) {
	var all []request
	err := l.lines("packages", func(fields []string) error {
		r := request{architecture: architecture}
		switch len(fields) {
		case 2:
		case 3:
			r.architecture = fields[2]
		default:
			return fmt.Errorf("want 2 or 3 fields, got %d", len(fields))
		}
		r.layer, r.name = fields[0], fields[1]
		if r.architecture == architecture {
			all = append(all, r)
		}
		return nil
	})
	return all, err
}

// without returns the packages that the bundle leaves out.
func (l Lists) without() ([]string, error) {
	var names []string
	err := l.lines("without", func(fields []string) error {
		names = append(names, fields...)
		return nil
	})
	return names, err
}

// lines calls each for the fields of each line of a list that is neither empty nor a comment.
func (l Lists) lines(name string, each func(fields []string) error) error {
	text, err := fs.ReadFile(l, name)
	if err != nil {
		return fmt.Errorf("read list of the bundle: %w", err)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := each(fields); err != nil {
			return fmt.Errorf("%s, line %d: %w", name, number, err)
		}
	}
	return nil
}
