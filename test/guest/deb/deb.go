// Package deb takes Debian packages from the machine's own apt sources and reads files out of them
// without installing them.
//
// It owns resolving names to versions, downloading into a cache, and reading. It installs nothing
// and changes nothing of the machine but apt's package lists, which it refreshes when they are
// missing or older than the mirror. apt verifies what it downloads.
package deb

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest/cache"
)

// Package is the version of a package that apt would install.
type Package struct {
	Name, Version, SHA256 string
	Depends               []string // names of the first alternatives, without versions
	options               []string // apt's, for a package of another architecture
}

// Key identifies this package's content.
func (p Package) Key() string { return p.Name + "=" + p.Version + " " + p.SHA256 }

// Resolve finds the candidates of names, in their order. Where apt knows none of them, it
// refreshes the package lists once, for which it has to be root. apt keeps its index of the lists in the
// folder root.
func Resolve(ctx context.Context, root string, names ...string) ([]Package, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("resolve Debian packages: %w", err)
	}
	found, err := show(ctx, root, nil, names)
	if err == nil {
		return found, nil
	}
	if updateErr := update(ctx); updateErr != nil {
		return nil, errors.Join(err, updateErr)
	}
	return show(ctx, root, nil, names)
}

func update(ctx context.Context) error {
	if _, err := Run(Command(ctx, "apt-get", "-q", "update")); err != nil {
		return fmt.Errorf("refresh the package lists (run apt-get update as root): %w", err)
	}
	return nil
}

// show has apt keep its index of the lists in the folder root: without one, as an image of Debian configures
// it, each call parses all the lists.
func show(ctx context.Context, root string, options, names []string) ([]Package, error) {
	index := []string{"-o", "Dir::Cache::pkgcache=" + filepath.Join(root, "pkgcache.bin")}
	args := slices.Concat(options, index, []string{"show", "--no-all-versions"}, names)
	out, err := Run(Command(ctx, "apt-cache", args...))
	if err != nil {
		return nil, fmt.Errorf("resolve Debian packages: %w", err)
	}
	byName := map[string]Package{}
	for _, p := range parse(string(out)) {
		byName[p.Name] = p
	}
	found := make([]Package, 0, len(names))
	for _, n := range names {
		p, ok := byName[n]
		if !ok {
			return nil, fmt.Errorf("resolve Debian package %s: apt has no such package", n)
		}
		found = append(found, p)
	}
	return found, nil
}

// parse reads the stanzas of apt-cache show; see deb-control(5).
func parse(text string) []Package {
	var found []Package
	for stanza := range strings.SplitSeq(text, "\n\n") {
		var p Package
		lines := bufio.NewScanner(strings.NewReader(stanza))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "Package":
				p.Name = value
			case "Version":
				p.Version = value
			case "SHA256":
				p.SHA256 = value
			case "Depends":
				p.Depends = dependencies(value)
			}
		}
		if p.Name != "" {
			found = append(found, p)
		}
	}
	return found
}

func dependencies(value string) []string {
	var names []string
	for d := range strings.SplitSeq(value, ",") {
		if f := strings.Fields(d); len(f) > 0 {
			names = append(names, f[0])
		}
	}
	return names
}

// Download returns the path of the package's file in the folder root, where it is kept for later
// runs.
func (p Package) Download(ctx context.Context, root string) (string, error) {
	dir, err := cache.Dir(ctx, root, p.Name, cache.Key(p.Key()), func(tmp string) error {
		// apt drops its rights for downloads and then warns that it can't write to our folder.
		args := append(slices.Clone(p.options), "-q", "-o", "APT::Sandbox::User=root", "download", p.Name+"="+p.Version)
		cmd := Command(ctx, "apt-get", args...)
		cmd.Dir = tmp
		_, err := Run(cmd)
		if err == nil {
			return nil
		}
		// A mirror drops a version when the next one comes: the lists are old then.
		return fmt.Errorf("download Debian package (apt-get update, where the lists are old): %w", err)
	})
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("%s holds %d packages instead of 1, remove it: %w", dir, len(files), errors.Join(err, os.ErrNotExist))
	}
	return files[0], nil
}

// Read calls visit for each file of the package at debPath, in the package's order; names have no
// leading slash or dot. The reader is the file's content and is valid during the call.
func Read(ctx context.Context, debPath string, visit func(name string, h *tar.Header, r io.Reader) error) error {
	cmd := Command(ctx, "dpkg-deb", "--fsys-tarfile", debPath)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read %s: %w", debPath, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("read %s: %w", debPath, err)
	}
	visitErr := walk(tar.NewReader(out), visit)
	if visitErr == nil {
		_, visitErr = io.Copy(io.Discard, out) // the tar's padding: dpkg-deb must not meet a closed pipe
	} else {
		_ = cmd.Process.Kill()
	}
	waitErr := cmd.Wait()
	switch {
	case visitErr != nil:
		return fmt.Errorf("read %s: %w", debPath, visitErr)
	case waitErr != nil:
		return Failed(cmd, waitErr, []byte(errs.String()))
	}
	return nil
}

func walk(t *tar.Reader, visit func(string, *tar.Header, io.Reader) error) error {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := visit(strings.TrimPrefix(path.Clean("/"+h.Name), "/"), h, t); err != nil {
			return err
		}
	}
}
