package images

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/guest/cache"
	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// debianRecipe changes when Debian lays the same packages out in another way.
const debianRecipe = "1"

// merged are the folders that are links into usr on today's Debian, whatever a package says.
var merged = []string{"bin", "lib", "lib64", "sbin"}

// undocumented are folders without use in a container.
var undocumented = []string{
	"usr/share/doc/", "usr/share/info/", "usr/share/lintian/", "usr/share/locale/", "usr/share/man/", "var/lib/dpkg/",
}

// Debian is a layer with Debian packages and what they depend on, without documentation. Pre-dependencies, which
// essential packages have, are the caller's to name. No script of a package runs, so there are no alternatives.
// The files stay in the cache.
func Debian(ctx context.Context, o guest.Options, packages ...string) (Layer, error) {
	found, err := deb.Closure(ctx, o.Packages(), packages...)
	if err != nil {
		return Layer{}, err
	}
	key := []string{debianRecipe}
	for _, p := range found {
		key = append(key, p.Key())
	}
	dir, err := cache.Dir(ctx, o.CacheDir(), "image_"+strings.Join(packages, "_"), cache.Key(key...), func(tmp string) error {
		return unpack(ctx, o, found, tmp)
	})
	if err != nil {
		return Layer{}, err
	}
	files, err := folder(dir)
	if err != nil {
		return Layer{}, fmt.Errorf("read the files of Debian packages: %w", err)
	}
	return Layer{Files: append(files, File{Name: "tmp/", Mode: 0o1777}, File{Name: "var/tmp/", Mode: 0o1777})}, nil
}

// unpack writes the files of packages below dir.
func unpack(ctx context.Context, o guest.Options, packages []deb.Package, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range merged {
		if err := root.MkdirAll(path.Join("usr", name), 0o755); err != nil {
			return err
		}
		if err := root.Symlink("usr/"+name, name); err != nil {
			return err
		}
	}
	for _, p := range packages {
		debPath, err := p.Download(ctx, o.Packages())
		if err != nil {
			return err
		}
		if err := deb.Read(ctx, debPath, func(name string, h *tar.Header, r io.Reader) error {
			return extract(root, name, h, r)
		}); err != nil {
			return fmt.Errorf("unpack Debian package %s: %w", p.Name, err)
		}
	}
	return nil
}

// usrMerged is where a package's file is on a Debian whose /bin and so on are links.
func usrMerged(name string) string {
	name = strings.TrimSuffix(name, "/")
	for _, m := range merged {
		if name == m || strings.HasPrefix(name, m+"/") {
			return "usr/" + name
		}
	}
	return name
}

func extract(root *os.Root, name string, h *tar.Header, r io.Reader) error {
	name = usrMerged(name)
	for _, u := range undocumented {
		if strings.HasPrefix(name+"/", u) {
			return nil
		}
	}
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(path.Clean(name), 0o755)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(usrMerged(strings.TrimPrefix(h.Linkname, "./")), name)
	case tar.TypeReg:
		return create(root, name, h.FileInfo().Mode().Perm(), r)
	}
	return fmt.Errorf("%s has type %q", name, h.Typeflag)
}

func create(root *os.Root, name string, mode fs.FileMode, r io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// folder is the content of a folder, which must not change.
func folder(dir string) (files []File, err error) {
	err = filepath.WalkDir(dir, func(from string, d fs.DirEntry, err error) error {
		if err != nil || from == dir {
			return err
		}
		name, err := filepath.Rel(dir, from)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := File{Name: name, Mode: int64(info.Mode().Perm())}
		switch {
		case d.IsDir():
			f.Name += "/"
		case d.Type() == fs.ModeSymlink:
			f.Link, err = os.Readlink(from)
		default:
			f.From = from
		}
		files = append(files, f)
		return err
	})
	return files, err
}
