package guest

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// agentPackages hold Debian's guest agent, which is the first, and the libraries that it needs.
var agentPackages = []string{
	"qemu-guest-agent", "libc6", "libglib2.0-0", "libpcre2-8-0", "libnuma1", "libudev1", "liburing2",
}

// AgentFiles are the guest agent's program, and the shared libraries that it needs by their names,
// its loader among them.
type AgentFiles struct {
	Program   []byte
	Libraries map[string][]byte
}

// The loader's name, which programs have built in with its folder.
const (
	loader    = "ld-linux-x86-64.so.2"
	loaderDir = "lib64"
)

// Agent takes Debian's guest agent out of its package.
func Agent(ctx context.Context, o Options) (AgentFiles, error) {
	found, err := deb.Resolve(ctx, agentPackages...)
	if err != nil {
		return AgentFiles{}, err
	}
	return readAgent(ctx, o, found)
}

func readAgent(ctx context.Context, o Options, packages []deb.Package) (AgentFiles, error) {
	all := sharedObjects{files: map[string][]byte{}, links: map[string]string{}}
	for _, p := range packages {
		file, err := p.Download(ctx, o.Packages())
		if err != nil {
			return AgentFiles{}, err
		}
		if err := deb.Read(ctx, file, all.add); err != nil {
			return AgentFiles{}, err
		}
	}
	agent := AgentFiles{Program: all.files["qemu-ga"], Libraries: map[string][]byte{}}
	if agent.Program == nil {
		return AgentFiles{}, fmt.Errorf("package %s holds no qemu-ga", packages[0].Key())
	}
	if err := all.need(agent.Program, agent.Libraries); err != nil {
		return AgentFiles{}, err
	}
	return agent, all.take(loader, agent.Libraries)
}

// sharedObjects are programs and libraries by their names, and links to them.
type sharedObjects struct {
	files map[string][]byte
	links map[string]string
}

func (s sharedObjects) add(name string, h *tar.Header, r io.Reader) (err error) {
	base := path.Base(name)
	if base != "qemu-ga" && !strings.Contains(base, ".so") {
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
		return fmt.Errorf("no package of %s holds %s", strings.Join(agentPackages, ", "), name)
	}
	into[name] = data
	return s.need(data, into)
}
