package bundle

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// entry is a file, a folder or a symbolic link of the image.
type entry struct {
	layer  string
	from   string // the package
	kind   byte   // of archive/tar: TypeReg, TypeDir or TypeSymlink
	mode   int64
	target string // of a link
	offset int64  // of the content
	size   int64
}

// tree holds what is in the image by its path, which has no slash at its start.
type tree struct {
	entries  map[string]entry
	contents *os.File // the files' contents, one after the other
	end      int64
	rules    rules
}

func newTree(contents *os.File) *tree {
	return &tree{entries: map[string]entry{}, contents: contents}
}

// fill reads the packages' files, and adds the files that no package has, and nodevirt's programs.
func (t *tree) fill(ctx context.Context, o Options, packages []Package, files []string) (err error) {
	if t.rules, err = o.Lists.rules(); err != nil {
		return err
	}
	if err := t.base(o.Architecture); err != nil {
		return err
	}
	for i, p := range packages {
		if err := t.unpack(ctx, p, files[i]); err != nil {
			return fmt.Errorf("package %s %s: %w", p.Name, p.Version, err)
		}
	}
	for _, name := range programs() {
		if err := t.program(o, name); err != nil {
			return err
		}
	}
	return nil
}

// unpack adds the files of a package.
func (t *tree) unpack(ctx context.Context, p Package, file string) (err error) {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = t.read(p, tar.NewReader(out))
	if err == nil {
		_, err = io.Copy(io.Discard, out) // the padding: dpkg-deb must not find the pipe closed
	} else {
		_ = cmd.Process.Kill()
	}
	if waitErr := cmd.Wait(); err == nil && waitErr != nil {
		err = fmt.Errorf("dpkg-deb: %w: %s", waitErr, strings.TrimSpace(errs.String()))
	}
	return err
}

func (t *tree) read(p Package, r *tar.Reader) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := clean(h.Name)
		if name == "" || t.rules.drop(name) {
			continue
		}
		e := entry{layer: p.Layer, from: p.Name, kind: h.Typeflag, mode: h.Mode & 0o777}
		switch h.Typeflag {
		case tar.TypeReg:
			e, err = t.store(e, r)
		case tar.TypeDir:
		case tar.TypeSymlink:
			e.mode, e.target = 0o777, h.Linkname
		case tar.TypeLink: // a copy: in sorted layers the other name may come later
			linked, ok := t.entries[clean(h.Linkname)]
			if !ok || linked.kind != tar.TypeReg {
				return fmt.Errorf("%s is a hard link to %s, which is no file of the bundle", name, h.Linkname)
			}
			e = linked
		default:
			return fmt.Errorf("%s is neither a file nor a folder nor a link", name)
		}
		if err == nil {
			err = t.add(name, e)
		}
		if err != nil {
			return err
		}
	}
}

// clean returns a path in a package as the tree has it: below /usr, where the merged folders are.
func clean(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	top, _, _ := strings.Cut(name, "/")
	if _, merged := mergedFolders()[top]; merged {
		return "usr/" + name
	}
	return name
}

// store appends a file's content.
func (t *tree) store(e entry, r io.Reader) (entry, error) {
	n, err := io.Copy(t.contents, r)
	e.offset, e.size = t.end, n
	t.end += n
	return e, err
}

// add puts an entry into the tree. Packages share folders alone.
func (t *tree) add(name string, e entry) error {
	old, ok := t.entries[name]
	switch {
	case !ok:
		t.entries[name] = e
		return nil
	case old.kind == tar.TypeDir && e.kind == tar.TypeDir:
		return nil
	}
	return fmt.Errorf("%s is in %s, too", name, old.from)
}

// open returns the content of a file.
func (t *tree) open(e entry) *io.SectionReader {
	return io.NewSectionReader(t.contents, e.offset, e.size)
}

// names returns the paths in order.
func (t *tree) names() []string { return slices.Sorted(maps.Keys(t.entries)) }

// program adds one of nodevirt's programs.
func (t *tree) program(o Options, name string) error {
	f, err := os.Open(filepath.Join(o.Programs, path.Base(name)))
	if err != nil {
		return fmt.Errorf("nodevirt's programs: %w", err)
	}
	defer func() { _ = f.Close() }()
	e, err := t.store(entry{layer: own, from: "nodevirt", kind: tar.TypeReg, mode: 0o755}, f)
	if err != nil {
		return fmt.Errorf("nodevirt's programs: %w", err)
	}
	return t.add(name, e)
}

// resolve follows the symbolic links of a path, and returns the path of what it leads to.
func (t *tree) resolve(name string) (string, bool) {
	for range 40 { // as the kernel bounds it
		name = strings.TrimPrefix(path.Clean("/"+name), "/")
		next, link := t.follow(name)
		if !link {
			_, ok := t.entries[name]
			return name, ok || name == ""
		}
		name = next
	}
	return name, false
}

// follow replaces the first part of a path that is a symbolic link with the link's target.
func (t *tree) follow(name string) (next string, link bool) {
	for i, c := range name + "/" {
		e := t.entries[name[:i]]
		if c != '/' || e.kind != tar.TypeSymlink {
			continue
		}
		target := e.target
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name[:i]), target)
		}
		return path.Join(target, name[i:]), true
	}
	return "", false
}
