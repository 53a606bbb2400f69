package images

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// Where busybox and the libraries that it needs are in their packages. The dynamic busybox it is:
// the static one runs applets inside its shell, where a container's masked paths look like missing
// ones.
const (
	busyboxFile   = "bin/busybox"
	libraryFolder = "lib/x86_64-linux-gnu/"
	loader        = "ld-linux-x86-64.so.2"
)

var busyboxLibraries = []string{"libc.so.6", "libresolv.so.2", loader}

// Busybox is an image with Debian's busybox, its applets as hard links, and a shell as command.
func Busybox(ctx context.Context, o guest.Options) (v1.Image, error) {
	found, err := deb.Resolve(ctx, o.Packages(), "busybox", "libc6")
	if err != nil {
		return nil, err
	}
	taken := map[string][]byte{}
	for _, p := range found {
		if err := take(ctx, o, p, taken); err != nil {
			return nil, err
		}
	}
	files, err := busyboxRoot(ctx, taken)
	if err != nil {
		return nil, err
	}
	config := v1.Config{
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Cmd: []string{"sh"},
	}
	return FromFiles(config, Layer{Files: files})
}

// take reads busybox or its libraries from a package, by their names in the image.
func take(ctx context.Context, o guest.Options, p deb.Package, into map[string][]byte) error {
	debPath, err := p.Download(ctx, o.Packages())
	if err != nil {
		return err
	}
	return deb.Read(ctx, debPath, func(name string, h *tar.Header, r io.Reader) error {
		name = strings.TrimPrefix(name, "usr/") // a merged /usr
		wanted := name == busyboxFile
		for _, l := range busyboxLibraries {
			wanted = wanted || name == libraryFolder+l
		}
		if !wanted || h.Typeflag != tar.TypeReg {
			return nil
		}
		var err error
		into[name], err = io.ReadAll(r)
		return err
	})
}

func busyboxRoot(ctx context.Context, taken map[string][]byte) ([]File, error) {
	var files []File
	for _, dir := range []string{
		"bin/", "dev/", "etc/", "home/", "lib/", libraryFolder, "lib64/", "mnt/", "proc/", "root/", "sbin/", "sys/",
		"usr/", "usr/bin/", "usr/sbin/", "var/", "var/log/", "var/run/",
	} {
		files = append(files, File{Name: dir})
	}
	files = append(files,
		File{Name: "tmp/", Mode: 0o1777},
		File{Name: "etc/passwd", Data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/home:/bin/false\n")},
		File{Name: "etc/group", Data: []byte("root:x:0:\nnogroup:x:65534:\n")},
		File{Name: "lib64/" + loader, Link: "/" + libraryFolder + loader})
	for _, l := range busyboxLibraries {
		data, ok := taken[libraryFolder+l]
		if !ok {
			return nil, fmt.Errorf("package libc6 holds no %s", l)
		}
		files = append(files, File{Name: libraryFolder + l, Mode: 0o755, Data: data})
	}
	binary, ok := taken[busyboxFile]
	if !ok {
		return nil, fmt.Errorf("package busybox holds no %s", busyboxFile)
	}
	files = append(files, File{Name: busyboxFile, Mode: 0o755, Data: binary})
	applets, err := guest.Applets(ctx, binary)
	if err != nil {
		return nil, err
	}
	for _, a := range applets {
		if a != "busybox" {
			files = append(files, File{Name: "bin/" + a, Type: tar.TypeLink, Mode: 0o755, Link: busyboxFile})
		}
	}
	return files, nil
}
