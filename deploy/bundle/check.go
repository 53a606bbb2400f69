package bundle

import (
	"archive/tar"
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// check finds programs, libraries and scripts that need a file which is not in the tree, and links that lead nowhere.
func (t *tree) check() error {
	folders, err := t.folders()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range t.names() {
		switch e := t.entries[name]; e.kind {
		case tar.TypeSymlink:
			if _, ok := t.resolve(name); !ok && !strings.HasPrefix(e.target, "/run/") && !strings.HasPrefix(e.target, "/proc/") {
				errs = append(errs, fmt.Errorf("%s of %s is a link to %s, which is missing", name, e.from, e.target))
			}
		case tar.TypeReg:
			errs = append(errs, t.checkFile(name, e, folders)...)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("the bundle is incomplete; add packages to lists/packages, or drop files in lists/dropped:\n%w", errors.Join(errs...))
	}
	return nil
}

// folders returns where the loader looks for libraries without a cache.
func (t *tree) folders() ([]string, error) {
	for name, e := range t.entries {
		if e.kind == tar.TypeReg && path.Base(name) == "libc.so.6" {
			return []string{path.Dir(name), "usr/lib"}, nil
		}
	}
	return nil, errors.New("the bundle has no libc.so.6")
}

func (t *tree) checkFile(name string, e entry, folders []string) []error {
	head := bufio.NewReader(t.open(e))
	start, _ := head.Peek(4)
	switch {
	case string(start) == elf.ELFMAG:
		missing, err := t.missing(name, e, folders)
		if err != nil {
			return []error{fmt.Errorf("%s of %s: %w", name, e.from, err)}
		}
		var errs []error
		for _, m := range missing {
			errs = append(errs, fmt.Errorf("%s of %s needs %s, which is missing", name, e.from, m))
		}
		return errs
	case strings.HasPrefix(string(start), "#!") && e.mode&0o111 != 0:
		line, _ := head.ReadString('\n')
		fields := strings.Fields(strings.TrimPrefix(line, "#!"))
		if len(fields) == 0 {
			return nil
		}
		if _, ok := t.resolve(fields[0]); !ok {
			return []error{fmt.Errorf("the script %s of %s needs %s, which is missing", name, e.from, fields[0])}
		}
	}
	return nil
}

// missing returns the libraries and the interpreter of a program or library that are not in the tree.
func (t *tree) missing(name string, e entry, folders []string) ([]string, error) {
	f, err := elf.NewFile(t.open(e))
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err != nil {
			return nil, err
		}
		interpreter := strings.TrimRight(string(text), "\x00")
		if _, ok := t.resolve(interpreter); !ok {
			missing = append(missing, interpreter)
		}
	}
	needed, err := f.DynString(elf.DT_NEEDED)
	if err != nil {
		return nil, err
	}
	search := append(runPaths(f, name), folders...)
	for _, library := range needed {
		if !t.found(library, search) {
			missing = append(missing, library)
		}
	}
	return missing, nil
}

// runPaths returns the folders that a file names for its libraries.
func runPaths(f *elf.File, name string) []string {
	var all []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		values, _ := f.DynString(tag)
		for _, value := range values {
			for dir := range strings.SplitSeq(value, ":") {
				dir = strings.ReplaceAll(dir, "$ORIGIN", "/"+path.Dir(name))
				all = append(all, strings.ReplaceAll(dir, "${ORIGIN}", "/"+path.Dir(name)))
			}
		}
	}
	return all
}

func (t *tree) found(library string, folders []string) bool {
	for _, dir := range folders {
		if _, ok := t.resolve(path.Join(dir, library)); ok {
			return true
		}
	}
	return false
}
