package guest

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// kernelFiles is what Tiny takes from a kernel package.
type kernelFiles struct {
	image   []byte
	modules map[string][]byte // by name, without .ko
}

func readKernel(ctx context.Context, o Options, p deb.Package, modules []string) (kernelFiles, error) {
	path, err := p.Download(ctx, o.Packages())
	if err != nil {
		return kernelFiles{}, err
	}
	wanted := map[string]bool{}
	for _, m := range modules {
		wanted[m] = true
	}
	k := kernelFiles{modules: map[string][]byte{}}
	err = deb.Read(ctx, path, func(name string, _ *tar.Header, r io.Reader) error {
		base := filepath.Base(name)
		module, isModule := strings.CutSuffix(base, ".ko")
		var err error
		switch {
		case strings.HasPrefix(name, "boot/vmlinuz-"):
			k.image, err = io.ReadAll(r)
		case isModule && wanted[module]:
			k.modules[module], err = io.ReadAll(r)
		}
		return err
	})
	if err != nil {
		return kernelFiles{}, err
	}
	if k.image == nil {
		return kernelFiles{}, fmt.Errorf("package %s %s holds no kernel", p.Name, p.Version)
	}
	return k, nil
}

// busyboxFiles is a busybox and the names of its applets.
type busyboxFiles struct {
	binary  []byte
	applets []string
}

func readBusybox(ctx context.Context, o Options, p deb.Package) (busyboxFiles, error) {
	binary, err := busyboxBinary(ctx, o, p)
	if err != nil {
		return busyboxFiles{}, err
	}
	applets, err := Applets(ctx, binary)
	return busyboxFiles{binary, applets}, err
}

func busyboxBinary(ctx context.Context, o Options, p deb.Package) (binary []byte, err error) {
	path, err := p.Download(ctx, o.Packages())
	if err != nil {
		return nil, err
	}
	err = deb.Read(ctx, path, func(name string, _ *tar.Header, r io.Reader) error {
		var err error
		if name == "bin/busybox" || name == "usr/bin/busybox" {
			binary, err = io.ReadAll(r)
		}
		return err
	})
	if err == nil && binary == nil {
		err = fmt.Errorf("package %s %s holds no busybox", p.Name, p.Version)
	}
	return binary, err
}

// Applets asks a busybox for the names of its applets, by running it.
func Applets(ctx context.Context, binary []byte) ([]string, error) {
	dir, err := os.MkdirTemp("", "busybox-")
	if err != nil {
		return nil, fmt.Errorf("list busybox's applets: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "busybox")
	if err := os.WriteFile(path, binary, 0o755); err != nil {
		return nil, fmt.Errorf("list busybox's applets: %w", err)
	}
	out, err := deb.Run(deb.Command(ctx, path, "--list"))
	if err != nil {
		return nil, fmt.Errorf("list busybox's applets: %w", err)
	}
	return strings.Fields(string(out)), nil
}
