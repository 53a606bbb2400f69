package seed_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/seed"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// secretFolder is one as the kubelet makes it: files are links to those of a
// folder that is changed for another at once.
func secretFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "..2026_11_21")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..2026_11_21", filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(data, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWithSecrets(t *testing.T) {
	one := secretFolder(t, map[string]string{"userdata": "#cloud-config", "networkData": "version: 2"})
	got, err := seed.WithSecrets(seed.NoCloud(), vmspec.Seed{MetaData: "m", UserDataFrom: one, NetworkConfigFrom: one})
	if err != nil || got.UserData != "#cloud-config" || got.NetworkConfig != "version: 2" || got.MetaData != "m" {
		t.Errorf("%+v, %v", got, err)
	}
	large := secretFolder(t, map[string]string{"userdata": strings.Repeat("x", 1<<20+1)})
	outside := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(outside, "userdata")); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{
		secretFolder(t, nil): "no key userdata or userData",
		large:                "more than 1048576 bytes",
		outside:              "escapes",
		"/nowhere":           "no such file",
	} {
		if _, err := seed.WithSecrets(seed.NoCloud(), vmspec.Seed{UserDataFrom: folder}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", folder, err, want)
		}
	}
}

func TestWithKeys(t *testing.T) {
	keys := []vmspec.MountedSecret{
		{Name: "a", Folder: secretFolder(t, map[string]string{"b": "ssh-rsa AAAA2", "a": "ssh-rsa AAAA1 me"})},
		{Name: "b", Folder: secretFolder(t, map[string]string{"a": "ssh-rsa AAAA3"})},
	}
	for _, tt := range []struct {
		layout         seed.Layout
		metaData, want string
	}{
		{seed.NoCloud(), "instance-id: i\n", "instance-id: i\npublic-keys:\n- ssh-rsa AAAA1 me\n- ssh-rsa AAAA2\n- ssh-rsa AAAA3\n"},
		{seed.NoCloud(), "public-keys:\n- ssh-rsa AAAA0\nzone: b\n",
			"public-keys:\n- ssh-rsa AAAA0\n- ssh-rsa AAAA1 me\n- ssh-rsa AAAA2\n- ssh-rsa AAAA3\nzone: b\n"},
		{seed.ConfigDrive(), `{"uuid":"u"}`, `{"public_keys":{"0":"ssh-rsa AAAA1 me","1":"ssh-rsa AAAA2","2":"ssh-rsa AAAA3"},"uuid":"u"}` + "\n"},
		{seed.ConfigDrive(), `{"public_keys":{"0":"ssh-rsa AAAA0"}}`,
			`{"public_keys":{"0":"ssh-rsa AAAA0","1":"ssh-rsa AAAA1 me","2":"ssh-rsa AAAA2","3":"ssh-rsa AAAA3"}}` + "\n"},
	} {
		got, err := seed.WithSecrets(tt.layout, vmspec.Seed{MetaData: tt.metaData, KeysFrom: keys})
		if err != nil || got.MetaData != tt.want {
			t.Errorf("%s: %q, %v", tt.metaData, got.MetaData, err)
		}
	}
	none := vmspec.Seed{MetaData: "a: b\n", KeysFrom: []vmspec.MountedSecret{{Name: "a", Folder: "/nowhere"}}}
	if got, err := seed.WithSecrets(seed.NoCloud(), none); err == nil || !strings.Contains(err.Error(), "Secret a: ") || got.MetaData != none.MetaData {
		t.Errorf("%+v, %v", got, err)
	}
}
