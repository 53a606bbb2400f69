package nodesetup

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/journal"
)

// older returns a node as another version has installed it: with another unit, another setting of QEMU, and without
// the drop-in of libvirtd; how its files were before that, and how they are now.
func older(t *testing.T, layout string) (s *Setup, f *fake, before, now map[string]string) {
	t.Helper()
	s, f, _ = newNode(t, layout)
	before = tree(t, f.dir)
	if err := s.Install(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Load(s.Root)
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range j.Files {
		switch file.Path {
		case "etc/systemd/system/" + shimUnit:
			j.Files[i].After.Data = []byte("# older\n")
		case "etc/libvirt/qemu.conf":
			j.Files[i].After.Data = append(file.After.Data, "older_setting = 1\n"...)
		case "etc/systemd/system/libvirtd.service.d/nodevirt.conf":
			if err := (&journal.Journal{Files: []journal.File{file}}).Restore(s.Root); err != nil {
				t.Fatal(err)
			}
		}
	}
	j.Files = slices.DeleteFunc(j.Files, func(f journal.File) bool {
		return f.Path == "etc/systemd/system/libvirtd.service.d/nodevirt.conf"
	})
	if err := j.Apply(s.Root); err != nil {
		t.Fatal(err)
	}
	if err := j.Save(s.Root); err != nil {
		t.Fatal(err)
	}
	f.calls, f.log, f.vms = 0, nil, []string{"default/web"}
	return s, f, before, tree(t, f.dir)
}

// files are a node's without the journal.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := tree(t, dir)
	delete(all, journal.Path)
	return all
}

// TestUpgrade: an installation over another version's gives the files of a first one, while VMs and the kubelet run
// on, and an uninstallation still restores the originals.
func TestUpgrade(t *testing.T) {
	for _, layout := range []string{"kubeadm-debian", "k3s-server", "k0s-worker"} {
		fresh, of, _ := newNode(t, layout)
		if err := fresh.Install(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		s, f, before, _ := older(t, layout)
		var out strings.Builder
		s.Out = &out
		if err := s.Install(t.Context(), true); err != nil || f.calls > 0 {
			t.Errorf("a dry run made %d changes, %v", f.calls, err)
		}
		out.Reset()
		if err := s.Install(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, out.String(), "upgrade.golden")
		if diff := cmp.Diff(files(t, of.dir), files(t, f.dir)); diff != "" {
			t.Errorf("%s: files differ from a first installation's (-first +upgraded):\n%s", layout, diff)
		}
		installed(t, f)
		if slices.Contains(f.log, "restart "+f.kubeletUnit) {
			t.Error("the kubelet was restarted")
		}
		f.vms = nil
		if err := s.Uninstall(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		original(t, f, before)
	}
}

// TestUpgradeFails fails each change of an upgrade, once.
func TestUpgradeFails(t *testing.T) {
	for n := 1; ; n++ {
		s, f, _, now := older(t, "kubeadm-debian")
		f.failAt = n
		err := s.Install(t.Context(), false)
		if err == nil {
			if f.calls >= n || n < 4 {
				t.Errorf("change %d of %d failed without an error", n, f.calls)
			}
			return
		}
		if !strings.Contains(err.Error(), "the node has the version before") {
			t.Errorf("change %d: %v", n, err)
		}
		if diff := cmp.Diff(now, tree(t, f.dir)); diff != "" {
			t.Errorf("change %d: files differ (-before +after):\n%s", n, diff)
		}
	}
}

// TestUpgradeIsKilled kills an upgrade at each of its changes. Another one then completes.
func TestUpgradeIsKilled(t *testing.T) {
	fresh, of, _ := newNode(t, "k3s-server")
	if err := fresh.Install(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		s, f, before, _ := older(t, "k3s-server")
		f.killAt = n
		done := !killed(t, func() error { return s.Install(t.Context(), false) })
		f.killAt = 0
		if err := s.Install(t.Context(), false); err != nil {
			t.Errorf("install after a kill at change %d: %v", n, err)
		}
		if diff := cmp.Diff(files(t, of.dir), files(t, f.dir)); diff != "" {
			t.Errorf("change %d: files differ from a first installation's (-first +upgraded):\n%s", n, diff)
		}
		f.vms = nil
		if err := s.Uninstall(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		original(t, f, before)
		if done {
			return
		}
	}
}
