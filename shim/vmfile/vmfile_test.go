package vmfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/uefi"
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
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Annotations: map[string]string{"kubevirt.io/ignitiondata": `{"ignition": {}}`}}
	if err := f.Create(t.Context(), r, &imageunpack.Disk{}); err != nil {
		t.Fatal(err)
	}
	var m domain.Description
	f.Describe(r, &m)
	for path, want := range map[string]string{m.Kernel: "a kernel", m.Initrd: "an initrd", m.Ignition: `{"ignition": {}}`} {
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
	err = f.make(t.Context(), small, withKernel(nil), &imageunpack.Disk{Image: "guest"}, source{image: "/vmlinuz"})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a large kernel: %v", err)
	}
}

// mount makes a folder as the kubelet does for a Secret.
func mount(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "..2026")
	if err := errors.Join(os.Mkdir(data, 0o755), os.Symlink("..2026", filepath.Join(dir, "..data"))); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tableOf returns an ACPI table with a header and a byte more.
func tableOf(signature string) string {
	return signature + "\x25\x00\x00\x00" + strings.Repeat(".", 29)
}

func withTable(signature, folder string) record.Container {
	r := withKernel(nil)
	r.Spec.Firmware.Tables = []vmspec.ACPITable{{Signature: signature, Secret: vmspec.MountedSecret{Name: "license", Folder: folder}}}
	return r
}

func TestFirmware(t *testing.T) {
	f, dir := files(t)
	template := filepath.Join(t.TempDir(), "vars.fd")
	if err := os.WriteFile(template, []byte("variables"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := withTable("SLIC", mount(t, map[string]string{"slic.bin": tableOf("SLIC"), "other": "a"}))
	r.Spec.Firmware.Tables = append(r.Spec.Firmware.Tables, withTable("MSDM", mount(t, map[string]string{"msdm.bin": tableOf("MSDM")})).Spec.Firmware.Tables...)
	r.Firmware = &uefi.Firmware{Code: "/usr/share/code.fd", Variables: template}
	if err := f.Create(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	var m domain.Description
	f.Describe(r, &m)
	if len(m.ACPITables) != 2 {
		t.Fatalf("%+v", m)
	}
	for _, want := range []struct {
		path, text string
		mode       os.FileMode
	}{
		{m.UEFIVariables, "variables", 0o600}, {m.ACPITables[0].Path, tableOf("SLIC"), 0o400}, {m.ACPITables[1].Path, tableOf("MSDM"), 0o400},
	} {
		text, err := os.ReadFile(want.path)
		info, statErr := os.Stat(want.path)
		if err != nil || statErr != nil || string(text) != want.text || info.Mode() != want.mode || filepath.Dir(want.path) != dir {
			t.Errorf("%s: %q, %v, %v, %v", want.path, text, info, err, statErr)
		}
	}
	if err := f.Remove(r.ID); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestBadTables(t *testing.T) {
	for name, keys := range map[string]map[string]string{
		"no key":           {"msdm.bin": tableOf("SLIC")},
		"another table":    {"slic.bin": tableOf("MSDM")},
		"another length":   {"slic.bin": tableOf("SLIC") + "a"},
		"nothing":          {"slic.bin": ""},
		"larger than QEMU": {"slic.bin": "SLIC\x00\x00\x02\x00" + strings.Repeat(".", 0x20000-8)},
	} {
		f, _ := files(t)
		err := f.Create(t.Context(), withTable("SLIC", mount(t, keys)), nil)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "spec.domain.firmware.acpi.slicNameRef: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
