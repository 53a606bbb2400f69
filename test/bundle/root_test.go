//go:build packages

package bundle_test

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// unpack returns a folder with the image's files and with separate device nodes, but with nothing of the host.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	cmd := exec.CommandContext(t.Context(), "tar", "--extract", "--directory", root)
	cmd.Stdin = files
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, string(out))
	for name, device := range map[string]uint64{"null": unix.Mkdev(1, 3), "zero": unix.Mkdev(1, 5), "urandom": unix.Mkdev(1, 9)} {
		assert.NilError(t, unix.Mknod(filepath.Join(root, "dev", name), unix.S_IFCHR|0o666, int(device)))
	}
	return root
}

// run runs a program with the folder as its root, in separate namespaces.
func run(t *testing.T, root string, env []string, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = "/", append([]string{"PATH=/usr/sbin:/usr/bin"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func testPrograms(t *testing.T, root string) {
	for program, want := range map[string]string{
		"/usr/bin/qemu-system-x86_64":         "QEMU emulator version 10.",
		"/usr/bin/qemu-system-aarch64":        "QEMU emulator version 10.",
		"/usr/bin/qemu-img":                   "qemu-img version 10.",
		"/usr/bin/qemu-nbd":                   "qemu-nbd 10.",
		"/usr/bin/qemu-storage-daemon":        "qemu-storage-daemon version 10.",
		"/usr/sbin/libvirtd":                  "libvirtd (libvirt) 11.",
		"/usr/sbin/virtlogd":                  "virtlogd (libvirt) 11.",
		"/usr/bin/virsh":                      "11.",
		"/usr/bin/swtpm":                      "TPM emulator version",
		"/usr/sbin/dnsmasq":                   "Dnsmasq version",
		"/usr/sbin/nft":                       "nftables v",
		"/usr/sbin/tgtd":                      "1.0.",
		"/usr/sbin/tgtadm":                    "1.0.",
		"/usr/libexec/virtiofsd":              "virtiofsd 1.",
		"/usr/bin/prlimit":                    "prlimit from util-linux",
		"/usr/bin/getent":                     "getent (Debian GLIBC",
		"/usr/bin/nodevirt":                   "nodevirt",
		"/usr/libexec/nodevirt/nodevirt-shim": "nodevirt-shim",
	} {
		t.Run(filepath.Base(program), func(t *testing.T) {
			out, err := run(t, root, nil, program, "--version")
			assert.NilError(t, err, out)
			if !strings.Contains(out, want) {
				t.Errorf("%q does not have %q", out, want)
			}
		})
	}
}

// testTPM makes the state of a TPM with its certificates.
func testTPM(t *testing.T, root string) {
	assert.NilError(t, os.Mkdir(filepath.Join(root, "run/tpm"), 0o700))
	out, err := run(t, root, nil, "/usr/bin/swtpm_setup", "--tpm2", "--tpmstate", "/run/tpm", "--create-ek-cert", "--create-platform-cert")
	assert.NilError(t, err, out)
}

// testBlockDrivers has a driver fail at its server: a driver that is missing fails sooner.
func testBlockDrivers(t *testing.T, root string) {
	for driver, test := range map[string]struct{ options, want string }{
		"iscsi": {"transport=tcp,portal=127.0.0.1:1,target=iqn.2000-01.org.example:x", "iSCSI: Failed to connect to LUN"},
		"rbd":   {"pool=p,image=i,conf=/missing.conf", "error reading conf file /missing.conf"},
	} {
		out, err := run(t, root, nil, "/usr/bin/qemu-storage-daemon", "--blockdev", "node-name=a,driver="+driver+","+test.options)
		assert.ErrorContains(t, err, "exit status 1", out)
		if !strings.Contains(out, test.want) {
			t.Errorf("%s: %q does not have %q", driver, out, test.want)
		}
	}
}

// testModules loads each module into QEMU, with all symbols that it takes from QEMU.
func testModules(t *testing.T, root string) {
	modules, err := filepath.Glob(filepath.Join(root, "usr/lib/*/qemu/*.so"))
	assert.NilError(t, err)
	assert.Assert(t, len(modules) >= 8, "%d modules", len(modules))
	for _, module := range modules {
		name := strings.TrimPrefix(module, root)
		out, err := run(t, root, []string{"LD_BIND_NOW=1"}, "/lib64/ld-linux-x86-64.so.2", "--preload", name, "/usr/bin/qemu-system-x86_64", "--version")
		if err != nil || !strings.HasPrefix(out, "QEMU emulator version") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// linked reports whether a file is a program or library that needs others.
func linked(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false // another kind of file
	}
	defer func() { _ = f.Close() }()
	needed, err := f.ImportedLibraries()
	return err == nil && len(needed) > 0 && f.Machine == elf.EM_X86_64
}

// testLibraries has the loader look for the libraries of each program and library.
func testLibraries(t *testing.T, root string) {
	count := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if !linked(path) {
			return nil
		}
		count++
		out, err := run(t, root, nil, "/lib64/ld-linux-x86-64.so.2", "--list", strings.TrimPrefix(path, root))
		if err != nil || strings.Contains(out, "not found") {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
		return nil
	})
	assert.NilError(t, err)
	assert.Assert(t, count > 200, "%d programs and libraries", count)
	_, err = os.Stat(filepath.Join(root, "etc/ld.so.cache"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
