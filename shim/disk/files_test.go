package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/shim/iso"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/isofs"
)

// mountOf makes a folder as the kubelet does for a volume with files: names are links
// through one that it replaces when the object changes.
func mountOf(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	const version = "..2026_11_22"
	makeFolder(t, folder, version)
	link(t, version, filepath.Join(folder, "..data"))
	for name, content := range files {
		to := filepath.Join(folder, version, name)
		makeFolder(t, filepath.Dir(to))
		if err := os.WriteFile(to, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(name, "/")
		if err := os.Symlink(filepath.Join("..data", first), filepath.Join(folder, first)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	return folder
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// isoOf makes the image of a mount.
func isoOf(t *testing.T, source vmspec.Source, host string) (isofs.Image, error) {
	t.Helper()
	dir := t.TempDir()
	makeFolder(t, dir, "c1")
	d := filesDisk(folders{containers: func(id string) string { return filepath.Join(dir, id) }})
	k := Disk{Disk: vmspec.Disk{Name: "d", Source: source, Host: host, Label: "cfgdata"}, VM: record.Container{ID: "c1"}}
	if err := d.create(t.Context(), k); err != nil {
		left, readErr := os.ReadDir(filepath.Join(dir, "c1"))
		if readErr != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, readErr)
		}
		return isofs.Image{}, err
	}
	return isofs.Read(t, filepath.Join(dir, "c1", "files-d.iso")), nil
}

func TestFilesOfAMount(t *testing.T) {
	files := map[string]string{
		"key": "value", ".hidden": "", "binary": "\x00\xff\n", "deep/labels": "a=\"b\"\n", "deep/er/name": "web",
		"large": strings.Repeat("0123456789abcdef", 1<<16),
	}
	image, err := isoOf(t, vmspec.SourceConfigMap, mountOf(t, files))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files, image.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if mode := image.Modes["key"]; mode != 0o644 {
		t.Errorf("mode %s", mode)
	}
	if image, err := isoOf(t, vmspec.SourceSecret, mountOf(t, nil)); err != nil || len(image.Files) > 0 {
		t.Errorf("an optional object that is missing: %v, %v", image.Files, err)
	}
	plain := t.TempDir() // as no kubelet makes it
	if err := os.WriteFile(filepath.Join(plain, "a"), []byte("b"), 0o600); err != nil {
		t.Fatal(err)
	}
	link(t, "a", filepath.Join(plain, "c"))
	if image, err := isoOf(t, vmspec.SourceConfigMap, plain); err != nil || image.Files["a"] != "b" || image.Files["c"] != "b" {
		t.Errorf("%v, %v", image.Files, err)
	}
	for _, name := range []string{"Autounattend.xml", "unattend.xml"} {
		if _, err := isoOf(t, vmspec.SourceSysprep, mountOf(t, map[string]string{name: "<a/>"})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostileMounts: what leads out of a mount, has no end, or is no file, is refused.
func TestHostileMounts(t *testing.T) {
	for want, prepare := range map[string]func(dir string) error{
		"path escapes": func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "a")) },
		"escapes":      func(dir string) error { return os.Symlink("../../../../etc", filepath.Join(dir, "..data")) },
		`"pipe" is no file`: func(dir string) error {
			return syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)
		},
		"no such file": func(dir string) error { return os.Symlink("gone", filepath.Join(dir, "a")) },
		"more than 7 folders in each other": func(dir string) error {
			return os.Symlink(".", filepath.Join(dir, "a"))
		},
		"more than 1000 files and folders": func(dir string) error {
			for n := range iso.MaxFiles + 1 {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		},
		"more than 4194304 bytes": func(dir string) error {
			path := filepath.Join(dir, "a")
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
		"has more than 110 bytes": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, strings.Repeat("n", 111)), nil, 0o600)
		},
	} {
		dir := t.TempDir()
		if err := prepare(dir); err != nil {
			t.Fatal(err)
		}
		_, err := isoOf(t, vmspec.SourceConfigMap, dir)
		if !errors.Is(err, ErrVolume) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if _, err := isoOf(t, vmspec.SourceSysprep, mountOf(t, map[string]string{"answers.xml": ""})); !errors.Is(err, errNoAnswers) {
		t.Errorf("sysprep without its file: %v", err)
	}
	many := map[string]string{}
	for n := range iso.MaxFiles {
		many[fmt.Sprint(n)] = ""
	}
	if image, err := isoOf(t, vmspec.SourceConfigMap, mountOf(t, many)); err != nil || len(image.Joliet) != iso.MaxFiles {
		t.Errorf("%d files, %v", len(image.Joliet), err)
	}
}
