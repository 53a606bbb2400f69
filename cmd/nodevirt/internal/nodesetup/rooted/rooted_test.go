package rooted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestResolve: absolute links, and those that climb above the root folder, lead to files below it.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"data/kubernetes", "usr/lib/systemd", "etc"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "data/kubernetes/kubelet.conf"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"lib": "usr/lib", "etc/kubernetes": "/data/kubernetes", "data/kubernetes/other.conf": "/etc/kubernetes/kubelet.conf",
		"etc/up": "../../../../etc", "etc/loop": "/etc/loop", "etc/none": "/nowhere/at/all", "etc/deep": "kubernetes/../../usr",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, want := range map[string]string{
		"etc/kubernetes/kubelet.conf": "data/kubernetes/kubelet.conf", "etc/kubernetes/other.conf": "data/kubernetes/kubelet.conf",
		"lib/systemd": "usr/lib/systemd", "etc/up/kubernetes": "data/kubernetes", "etc/none/x": "nowhere/at/all/x", "etc/new/a": "etc/new/a",
		"etc/deep/lib": "usr/lib", ".": ".", "../../etc": "etc", "/etc//kubernetes/": "data/kubernetes",
	} {
		if got, err := Resolve(root, name); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", name, got, err, want)
		}
	}
	if got, err := Place(root, "etc/kubernetes/other.conf"); err != nil || got != "data/kubernetes/other.conf" {
		t.Errorf("a link in a folder is at %s, %v", got, err)
	}
	if _, err := Resolve(root, "etc/loop/x"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop: %v", err)
	}
	if text, err := ReadFile(root, "etc/kubernetes/other.conf"); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := ReadFile(root, "etc/none/x"); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "escapes") {
		t.Errorf("no file: %v", err)
	}
	if info, err := Stat(root, "etc/kubernetes"); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
}
