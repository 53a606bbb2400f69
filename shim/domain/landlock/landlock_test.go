package landlock

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"gotest.tools/v3/assert"
)

// TestMain lets this program confine another one, as nodevirt-qemu does.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == Name {
		fmt.Fprintln(os.Stderr, Enter(os.Args, os.Environ()))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// confined runs a program in QEMU's place.
func confined(t *testing.T, program string, env []string, args ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	assert.NilError(t, err)
	link, err := links(t.TempDir(), self, program)
	assert.NilError(t, err)
	cmd := exec.CommandContext(t.Context(), link, args...)
	cmd.Env = append(env, "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// file makes a file that is its own name.
func file(t *testing.T, path string) string {
	t.Helper()
	assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	assert.NilError(t, os.WriteFile(path, []byte(filepath.Base(path)), 0o666))
	return path
}

// listed is the environment of a QEMU with files.
func listed(t *testing.T, f Files, env ...string) []string {
	t.Helper()
	text, err := f.Encode()
	assert.NilError(t, err)
	return append(env, Variable+"="+text)
}

func TestEnter(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "domain-1-vm")
	key := file(t, filepath.Join(home, "key"))
	kernel, disk, other := file(t, dir+"/kernel"), file(t, dir+"/disk"), file(t, dir+"/other")
	env := listed(t, Files{Read: []string{kernel}, Write: []string{disk}}, "HOME="+home)
	for path, allowed := range map[string]bool{
		kernel: true, disk: true, key: true, "/proc/self/status": true, "/etc/ld.so.cache": true,
		other: false, "/etc/passwd": false, "/proc/1/status": false, "/proc/self/net/tcp": false, "/proc/version": false,
	} {
		if out, err := confined(t, "/usr/bin/head", env, "-c1", path); (err == nil) != allowed {
			t.Errorf("read %s: %v: %s", path, err, out)
		}
	}
	for path, allowed := range map[string]bool{disk: true, key: true, kernel: false, other: false, dir + "/new": false, home + "/new": false} {
		if out, err := confined(t, "/usr/bin/dd", env, "if=/dev/null", "of="+path); (err == nil) != allowed {
			t.Errorf("write %s: %v: %s", path, err, out)
		}
	}
	// The program is not the file that libvirt started.
	out, err := confined(t, "/usr/bin/dash", env, "-c", `echo "$0"`)
	assert.NilError(t, err, out)
	assert.Equal(t, out, "/usr/bin/dash\n")
}

// TestWithoutAList: libvirt's questions to QEMU are answered in one folder.
func TestWithoutAList(t *testing.T) {
	dir := t.TempDir()
	for path, allowed := range map[string]bool{dir + "/monitor": true, filepath.Dir(dir) + "/monitor": false} {
		out, err := confined(t, "/usr/bin/dash", []string{"HOME=/"}, "-c", `echo >"$0"`, path, "-pidfile", dir+"/pid")
		if (err == nil) != allowed {
			t.Errorf("make %s: %v: %s", path, err, out)
		}
	}
}

// TestMissing: QEMU does not start without a file of its VM, which it would open next.
func TestMissing(t *testing.T) {
	out, err := confined(t, "/usr/bin/true", listed(t, Files{Read: []string{"/nowhere/kernel"}}))
	if err == nil || out != "let QEMU use /nowhere/kernel: no such file or directory\n" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestLink(t *testing.T) {
	dir := t.TempDir()
	program, qemu := file(t, dir+"/program"), file(t, dir+"/qemu")
	link := func() string {
		path, err := links(dir, program, qemu)
		assert.NilError(t, err)
		return path
	}
	first := link()
	assert.Equal(t, link(), first)
	assert.NilError(t, os.WriteFile(qemu, []byte("a newer one"), 0o755))
	if link() == first {
		t.Error("libvirt would not ask the new QEMU what it can do")
	}
	to, err := filepath.EvalSymlinks(first)
	assert.NilError(t, err)
	assert.Equal(t, to, program)

	// A VM's user can't execute it, nor enter the folder.
	for _, closed := range []string{program, dir} {
		assert.NilError(t, os.Chmod(dir, 0o755))
		assert.NilError(t, os.Chmod(program, 0o755))
		assert.NilError(t, os.Chmod(closed, 0o700))
		if _, err := Link(dir, program, qemu); err == nil || !strings.Contains(err.Error(), closed+" is closed to them") {
			t.Errorf("%s is closed: %v", closed, err)
		}
	}
}

func TestAppArmor(t *testing.T) {
	const profiles, local = "sys/kernel/security/apparmor/profiles", "etc/apparmor.d/local/usr.sbin.libvirtd"
	const program, line = "/usr/local/bin/nodevirt-qemu", "/usr/local/bin/nodevirt-qemu PUx,\n"
	for name, tt := range map[string]struct {
		active, lines, program string
		refused                bool
	}{
		"no profile":     {"man_filter (enforce)\n", "", program, false},
		"only complains": {"libvirtd (complain)\n", "", program, false},
		"enforced":       {"man_filter (enforce)\nlibvirtd (enforce)\n", "", program, true},
		"named by path":  {"/usr/sbin/libvirtd (enforce)\n", "", program, true},
		"in /usr/bin":    {"libvirtd (enforce)\n", "", "/usr/bin/nodevirt-qemu", false},
		"permitted":      {"libvirtd (enforce)\n", line, program, false},
	} {
		err := permitted(fstest.MapFS{profiles: {Data: []byte(tt.active)}, local: {Data: []byte(tt.lines)}}, tt.program)
		if (err != nil) != tt.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	assert.NilError(t, permitted(fstest.MapFS{}, program))
}

func TestRights(t *testing.T) {
	for version, want := range map[int]uint64{1: 0x1fff, 2: 0x3fff, 3: 0x7fff, 4: 0x7fff, 5: 0xffff, 9: 0xffff} {
		if got := rights(version); got != want {
			t.Errorf("version %d: %#x; want %#x", version, got, want)
		}
	}
}
