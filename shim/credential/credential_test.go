package credential_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/credential"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// mount makes a folder as the kubelet does for a Secret of one version.
func mount(t *testing.T, version string, files map[string]string) vmspec.MountedSecret {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(version, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, version, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return vmspec.MountedSecret{Name: "s", Folder: dir}
}

func TestKeys(t *testing.T) {
	s := mount(t, "..1", map[string]string{"b": "ssh-rsa AAAA3", "a": "# two\nssh-rsa AAAA1 me\n\n ssh-ed25519 AAAA2 \n"})
	got, err := credential.Keys(s)
	if want := []string{"ssh-rsa AAAA1 me", "ssh-ed25519 AAAA2", "ssh-rsa AAAA3"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if v, err := credential.Version(s); err != nil || v != "..1" {
		t.Errorf("version %q, %v", v, err)
	}
	if got, err := credential.Keys(mount(t, "..1", nil)); err != nil || got == nil || len(got) > 0 {
		t.Errorf("an empty Secret: %#v, %v", got, err)
	}
}

func TestPasswords(t *testing.T) {
	got, err := credential.Passwords(mount(t, "..1", map[string]string{"fedora": " p w \n", "root": "\n"}))
	if err != nil || !maps.Equal(got, map[string]string{"fedora": "p w"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	outside := mount(t, "..1", nil)
	if err := os.Symlink("/etc/passwd", filepath.Join(outside.Folder, "..1", "root")); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]vmspec.MountedSecret{
		"Secret s: key k: line 2 is not a public key as in authorized_keys": mount(t, "..1", map[string]string{"k": "ssh-rsa AAAA\nhunter2"}),
		"Secret s: it has more than 1048576 bytes":                          mount(t, "..1", map[string]string{"k": strings.Repeat("\n", 1<<19), "l": strings.Repeat("\n", 1<<19+1)}),
		"escapes":       outside,
		"no such file":  {Name: "s", Folder: "/nowhere"},
		"data: no such": {Name: "s", Folder: t.TempDir()},
	} {
		if _, err := credential.Keys(s); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v; want %s", err, want)
		}
	}
	_, err := credential.Passwords(mount(t, "..1", map[string]string{"root": "hunter2\nx"}))
	if err == nil || err.Error() != "read Secret s: key root: a password is one line of text" {
		t.Error(err)
	}
	if _, err := credential.Version(vmspec.MountedSecret{Name: "s", Folder: t.TempDir()}); err == nil {
		t.Error("a folder without a Secret has a version")
	}
}
