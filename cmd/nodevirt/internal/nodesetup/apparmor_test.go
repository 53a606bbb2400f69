package nodesetup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/deploy"
)

// put writes files below a folder.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const localProfile = "etc/apparmor.d/local/usr.sbin.libvirtd"

// TestAppArmor: on Debian, AppArmor confines libvirtd, which must start nodevirt-qemu.
func TestAppArmor(t *testing.T) {
	s, f, _ := newNode(t, "kubeadm-debian")
	put(t, f.dir, map[string]string{
		"usr/lib/systemd/system/apparmor.service": "[Unit]\n", "etc/apparmor.d/usr.sbin.libvirtd": "profile libvirtd {}\n",
		localProfile: "# Site-specific additions\n",
		// The package's unit says where its programs are.
		"usr/lib/systemd/system/" + shimUnit: placed(deploy.ShimUnit, "/usr/libexec/nodevirt"),
	})
	before := tree(t, f.dir)
	if err := s.Install(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(f.dir, localProfile))
	if want := "# Site-specific additions\n/usr/libexec/nodevirt/nodevirt-qemu PUx,\n"; err != nil || string(text) != want {
		t.Errorf("%v; the profile's lines are %q; want %q", err, text, want)
	}
	reload, restart := "try-reload-or-restart apparmor.service", "stop libvirtd.socket"
	if i := slices.Index(f.log, reload); i < 0 || !slices.ContainsFunc(f.log[i:], func(call string) bool { return strings.HasPrefix(call, restart) }) {
		t.Errorf("no %q before %q in %q", reload, restart, f.log)
	}
	f.log = nil
	if err := s.Uninstall(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	original(t, f, before)
	if !slices.Contains(f.log, reload) {
		t.Errorf("no %q in %q", reload, f.log)
	}
}

// TestAppArmorIsAbsent: libvirt's package has a profile where AppArmor is not installed, too.
func TestAppArmorIsAbsent(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no AppArmor": {"etc/apparmor.d/usr.sbin.libvirtd": "profile libvirtd {}\n"},
		"no profile":  {"usr/lib/systemd/system/apparmor.service": "[Unit]\n"},
	} {
		s, f, _ := newNode(t, "kubeadm-debian")
		put(t, f.dir, files)
		if err := s.Install(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(f.dir, localProfile)); err == nil {
			t.Errorf("%s: %s was written", name, localProfile)
		}
	}
}
