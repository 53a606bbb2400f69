package vmfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// folder opens files of one image, which is a folder.
type folder string

func (f folder) Open(_ context.Context, _ imageunpack.Disk, name string) (*os.File, error) {
	file, err := os.Open(filepath.Join(string(f), name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, imageunpack.ErrNotFound
	}
	return file, err
}

func files(t *testing.T) (f *Files, dir string) {
	t.Helper()
	image := t.TempDir()
	for name, text := range map[string]string{"vmlinuz": "a kernel", "initrd.img": "an initrd"} {
		if err := os.WriteFile(filepath.Join(image, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir = t.TempDir()
	return New(folder(image), func(string) string { return dir }), dir
}

func withKernel(k *vmspec.Kernel) record.Container {
	r := record.Container{ID: "c1", Domain: record.Domain{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}}
	r.Spec.Firmware.Kernel = k
	return r
}

func TestFiles(t *testing.T) {
	f, dir := files(t)
	r := withKernel(&vmspec.Kernel{Path: "/vmlinuz", Initrd: "/initrd.img"})
	if err := f.Create(t.Context(), r, &imageunpack.Disk{}); err != nil {
		t.Fatal(err)
	}
	var m domain.Description
	f.Describe(r, &m)
	for path, want := range map[string]string{m.Kernel: "a kernel", m.Initrd: "an initrd"} {
		text, err := os.ReadFile(path)
		if err != nil || string(text) != want || filepath.Dir(path) != dir {
			t.Errorf("%s: %q, %v, want %q", path, text, err, want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o400 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	for range 2 { // removing twice is no error
		if err := f.Remove(r.ID); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestWithoutFiles(t *testing.T) {
	f, dir := files(t)
	var m domain.Description
	r := withKernel(nil)
	if err := f.Create(t.Context(), r, nil); err != nil {
		t.Error(err)
	}
	f.Describe(r, &m)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 || m.Kernel+m.Initrd != "" {
		t.Errorf("%v, %v, %+v", left, err, m)
	}
	r = withKernel(&vmspec.Kernel{Path: "/vmlinuz"})
	if err := f.Create(t.Context(), r, &imageunpack.Disk{}); err != nil {
		t.Error(err)
	}
	f.Describe(r, &m)
	if m.Kernel == "" || m.Initrd != "" {
		t.Errorf("%+v", m)
	}
}

func TestBadFiles(t *testing.T) {
	f, _ := files(t)
	err := f.Create(t.Context(), withKernel(&vmspec.Kernel{Path: "/vmlinuz", Initrd: "/missing"}), &imageunpack.Disk{})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "kernelBoot.container.initrdPath: ") {
		t.Errorf("a missing initrd: %v", err)
	}
	if err := f.Create(t.Context(), withKernel(&vmspec.Kernel{Path: "/vmlinuz"}), nil); err == nil {
		t.Error("a kernel of no image")
	}
	if err := f.Create(t.Context(), withKernel(&vmspec.Kernel{Path: "/vmlinuz"}), &imageunpack.Disk{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a kernel that is there: %v", err)
	}
	small := table()[0]
	small.name, small.limit = "small", 3
	err = f.copy(t.Context(), small, withKernel(nil), imageunpack.Disk{Image: "guest"}, "/vmlinuz")
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large kernel: %v", err)
	}
}
