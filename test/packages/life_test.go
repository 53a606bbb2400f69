//go:build packages

package packages_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// debian12 are the versions of the packages in Debian 12 that nodevirt's packages depend on.
func debian12() map[string]string {
	return map[string]string{
		"libc6": "2.36-9+deb12u10", "libvirt0": "9.0.0-4", "libvirt-daemon-system": "9.0.0-4",
		"qemu-system-x86": "1:7.2+dfsg-7+deb12u12", "qemu-utils": "1:7.2+dfsg-7+deb12u12",
		"dnsmasq-base": "2.89-1", "nftables": "1.0.6-2+deb12u2",
	}
}

// host is a folder with a database of dpkg, in which the given packages are installed. dpkg runs the
// maintainer scripts with DPKG_ROOT set to the folder, without entering it.
type host struct{ dir string }

func newHost(t *testing.T, installed map[string]string) host {
	t.Helper()
	h := host{t.TempDir()}
	var status strings.Builder
	for name, version := range installed {
		status.WriteString("Package: " + name + "\nStatus: install ok installed\nMaintainer: x\nArchitecture: amd64\n" +
			"Version: " + version + "\nDescription: x\n\n")
	}
	for path, text := range map[string]string{
		"var/lib/dpkg/status": status.String(), "var/lib/dpkg/available": "", "var/lib/dpkg/info/format": "1\n",
		"var/lib/dpkg/updates/.keep": "", "var/lib/dpkg/triggers/File": "",
	} {
		h.write(t, path, text)
	}
	if err := os.Remove(h.path("var/lib/dpkg/updates/.keep")); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h host) path(name string) string { return filepath.Join(h.dir, name) }

func (h host) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (h host) has(name string) bool {
	_, err := os.Lstat(h.path(name))
	return !errors.Is(err, fs.ErrNotExist)
}

func (h host) dpkg(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return try(t.Context(), "dpkg", append([]string{
		"--root=" + h.dir, "--force-script-chrootless", "--force-confdef", "--force-confold", "--log=/dev/null",
	}, args...)...)
}

func (h host) must(t *testing.T, args ...string) {
	t.Helper()
	if out, err := h.dpkg(t, args...); err != nil {
		t.Fatalf("dpkg %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// left returns the files that are not dpkg's own.
func (h host) left(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, h.dir+"/")
		if err == nil && !d.IsDir() && !strings.HasPrefix(name, "var/lib/dpkg/") {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// guest starts a process with the arguments of a VM's QEMU that has a file open, and returns what ends it.
func (h host) guest(t *testing.T, disk string) (end func()) {
	t.Helper()
	f, err := os.OpenFile(h.path(disk), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read x", "-name", "guest=default_web_vm_0123456789ab,debug-threads=on")
	cmd.ExtraFiles = []*os.File{f}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait() // "read" fails at the end of its input
	}
}

// refuses fails the test unless dpkg does not remove the package of a node while a VM runs, and a file is still there.
func (h host) refuses(t *testing.T, action, file string) {
	t.Helper()
	out, err := h.dpkg(t, action, "nodevirt-node")
	if err == nil || !strings.Contains(out, "VMs run on this node") || !strings.Contains(out, "default_web_vm_0123456789ab") {
		t.Errorf("%s with a running VM: %v\n%s", action, err, out)
	}
	if !h.has(file) {
		t.Errorf("%s deleted %s under a running VM", action, file)
	}
}

const config = "etc/nodevirt/nodevirt-shim.toml"

func TestInstallUpgradeRemovePurge(t *testing.T) {
	h := newHost(t, debian12())
	h.must(t, "--install", file(t, built, debs["nodevirt"]), file(t, built, debs["nodevirt-node"]))
	for _, want := range []string{config, "usr/bin/nodevirt", "usr/libexec/nodevirt/nodevirt-shim"} {
		if !h.has(want) {
			t.Errorf("%s is not installed", want)
		}
	}
	if links, _ := filepath.Glob(h.path("etc/systemd/system/*")); len(links) > 0 {
		t.Errorf("the installation enabled %v", links)
	}

	// An upgrade keeps the administrator's config.
	const edited = "handler = \"mine\"\n"
	h.write(t, config, edited)
	next := t.TempDir()
	build(t, next, filepath.Join(built, "programs"), "v99.0.0")
	h.must(t, "--install", file(t, next, debs["nodevirt"]), file(t, next, debs["nodevirt-node"]))
	if text, err := os.ReadFile(h.path(config)); err != nil || string(text) != edited {
		t.Errorf("after the upgrade the config is %q, %v", text, err)
	}

	// While the kubelet uses the shim, it stays.
	h.write(t, "var/lib/nodevirt-node/install.json", "{}")
	if out, err := h.dpkg(t, "--remove", "nodevirt-node"); err == nil || !strings.Contains(out, "nodevirt node uninstall") {
		t.Errorf("remove a shim in use: %v\n%s", err, out)
	}
	if !h.has("usr/libexec/nodevirt/nodevirt-shim") {
		t.Error("the shim was removed in spite of its user")
	}
	if err := os.Remove(h.path("var/lib/nodevirt-node/install.json")); err != nil {
		t.Fatal(err)
	}

	// So do they while a VM runs on a node that was set up by hand.
	h.write(t, "var/lib/nodevirt/containers/a/disk.qcow2", "")
	end := h.guest(t, "var/lib/nodevirt/containers/a/disk.qcow2")
	h.refuses(t, "--remove", "usr/libexec/nodevirt/nodevirt-shim")
	h.refuses(t, "--purge", "usr/libexec/nodevirt/nodevirt-shim")
	end()

	h.write(t, "var/lib/nodevirt/containers/a/record.json", "{}")
	h.write(t, "run/nodevirt-node.lock", "")
	h.write(t, "run/nodevirt-tgtd/tgtd.0.lock", "")
	h.must(t, "--remove", "nodevirt-node", "nodevirt")
	if !h.has(config) || !h.has("var/lib/nodevirt/containers/a/record.json") || h.has("usr/bin/nodevirt") {
		t.Errorf("after the removal there are %v", h.left(t))
	}
	// A removal that was forced has left a VM.
	end = h.guest(t, "var/lib/nodevirt/containers/a/disk.qcow2")
	h.refuses(t, "--purge", "var/lib/nodevirt/containers/a/disk.qcow2")
	end()
	h.must(t, "--purge", "nodevirt-node", "nodevirt")
	if left := h.left(t); len(left) > 0 {
		t.Errorf("after the purge there are %v", left)
	}
	for _, dir := range []string{"etc/nodevirt", "var/lib/nodevirt", "var/lib/nodevirt-node", "usr/libexec/nodevirt", "run/nodevirt-tgtd"} {
		if h.has(dir) {
			t.Errorf("after the purge there is %s", dir)
		}
	}
}

// TestDependencies: dpkg refuses to configure the package beside a libvirt that is too old.
func TestDependencies(t *testing.T) {
	installed := debian12()
	installed["libvirt-daemon-system"] = "8.0.0-1"
	h := newHost(t, installed)
	out, err := h.dpkg(t, "--install", file(t, built, debs["nodevirt"]), file(t, built, debs["nodevirt-node"]))
	if err == nil || !strings.Contains(out, "nodevirt-node depends on libvirt-daemon-system (>= 9.0.0)") {
		t.Errorf("an old libvirt gave %v\n%s", err, out)
	}
}
