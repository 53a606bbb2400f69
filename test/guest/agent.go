package guest

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// agentProgram is the guest agent's program.
const agentProgram = "qemu-ga"

// agentPackages hold Debian's guest agent, which is the first, and the libraries that it needs.
var agentPackages = []string{
	"qemu-guest-agent", "libc6", "libglib2.0-0", "libpcre2-8-0", "libnuma1", "libudev1", "liburing2",
}

// ProgramFiles are programs of Debian's by their names, and the shared libraries that they need, their
// loader among them.
type ProgramFiles struct {
	Programs, Libraries map[string][]byte
}

// The loader's name, which programs have built in with its folder.
const (
	loader    = "ld-linux-x86-64.so.2"
	loaderDir = "lib64"
)

// Agent takes Debian's guest agent out of its package.
func Agent(ctx context.Context, o Options) (ProgramFiles, error) {
	return Programs(ctx, o, agentPackages, agentProgram)
}

// Programs takes programs out of packages, which hold the libraries, too. A name may be that of a library.
func Programs(ctx context.Context, o Options, packages []string, names ...string) (ProgramFiles, error) {
	found, err := deb.Resolve(ctx, o.Packages(), packages...)
	if err != nil {
		return ProgramFiles{}, err
	}
	return readPrograms(ctx, o, found, names...)
}

// ProgramsOf takes programs out of packages and of those that they depend on.
func ProgramsOf(ctx context.Context, o Options, packages []string, names ...string) (ProgramFiles, error) {
	found, err := deb.Closure(ctx, o.Packages(), packages...)
	if err != nil {
		return ProgramFiles{}, err
	}
	return readPrograms(ctx, o, found, names...)
}

func readPrograms(ctx context.Context, o Options, packages []deb.Package, names ...string) (ProgramFiles, error) {
	all := sharedObjects{wanted: names, files: map[string][]byte{}, links: map[string]string{}}
	for _, p := range packages {
		file, err := p.Download(ctx, o.Packages())
		if err != nil {
			return ProgramFiles{}, err
		}
		if err := deb.Read(ctx, file, all.add); err != nil {
			return ProgramFiles{}, err
		}
	}
	result := ProgramFiles{Programs: map[string][]byte{}, Libraries: map[string][]byte{}}
	for _, name := range names {
		if strings.Contains(name, ".so.") {
			if err := all.take(name, result.Libraries); err != nil {
				return ProgramFiles{}, err
			}
			continue
		}
		if all.files[name] == nil {
			return ProgramFiles{}, fmt.Errorf("package %s holds no %s", packages[0].Key(), name)
		}
		result.Programs[name] = all.files[name]
		if err := all.need(all.files[name], result.Libraries); err != nil {
			return ProgramFiles{}, err
		}
	}
	return result, all.take(loader, result.Libraries)
}

// sharedObjects are programs and libraries by their names, and links to them.
type sharedObjects struct {
	wanted []string // programs
	files  map[string][]byte
	links  map[string]string
}

func (s sharedObjects) add(name string, h *tar.Header, r io.Reader) (err error) {
	base := path.Base(name)
	program := strings.HasSuffix(path.Dir(name), "bin") && slices.Contains(s.wanted, base)
	if !program && !strings.Contains(base, ".so") {
		return nil
	}
	switch h.Typeflag {
	case tar.TypeReg:
		s.files[base], err = io.ReadAll(r)
	case tar.TypeSymlink:
		if target := path.Base(h.Linkname); target != base {
			s.links[base] = target
		}
	}
	return err
}

// need takes what a program or library needs.
func (s sharedObjects) need(object []byte, into map[string][]byte) error {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return fmt.Errorf("read a program: %w", err)
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read a program: %w", err)
	}
	for _, name := range names {
		if err := s.take(name, into); err != nil {
			return err
		}
	}
	return nil
}

func (s sharedObjects) take(name string, into map[string][]byte) error {
	if into[name] != nil {
		return nil
	}
	data := s.files[name]
	if data == nil {
		data = s.files[s.links[name]]
	}
	if data == nil {
		return fmt.Errorf("no package holds %s, which %s need", name, strings.Join(s.wanted, ", "))
	}
	into[name] = data
	return s.need(data, into)
}
