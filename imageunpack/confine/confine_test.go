package confine_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack/confine"
	"github.com/nodevirt/nodevirt/imageunpack/confine/confinetest"
	"github.com/nodevirt/nodevirt/test/needs"
)

func TestMain(m *testing.M) {
	confinetest.Enter()
	os.Exit(m.Run())
}

const uid = 1_900_000_009

// run executes a program of the node, confined, with file as descriptor 3.
func run(t *testing.T, file *os.File, p confine.Program) (string, error) {
	t.Helper()
	needs.Parts(t, "root")
	p.UID, p.GID = uid, uid
	p.Descriptors = []int{3}
	work, err := json.Marshal(p)
	assert.NilError(t, err)
	stage := append(confinetest.Stage(), t.TempDir())
	cmd := exec.CommandContext(t.Context(), stage[0], stage[1:]...)
	cmd.Stdin, cmd.ExtraFiles = bytes.NewReader(work), []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// secret is a file of root's.
func secret(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	assert.NilError(t, os.WriteFile(path, []byte("read"), 0o600))
	f, err := os.Open(path)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestReach: a program sees its libraries and its own process, and has no rights.
func TestReach(t *testing.T) {
	out, err := run(t, secret(t), confine.Program{Path: "/usr/bin/ls", Args: []string{"ls", "-A", "/", "/etc", "/dev", "/proc"}})
	assert.NilError(t, err, out)
	for name := range strings.FieldsSeq(out) {
		switch name {
		case "/:", "/etc:", "/dev:", "/proc:", "usr", "lib", "lib64", "etc", "proc", "dev", "ld.so.cache", "null", "self", "thread-self":
		default:
			if strings.Trim(name, "0123456789") != "" {
				t.Errorf("it sees %s", name)
			}
		}
	}
	processes := strings.Fields(out[strings.Index(out, "/proc:"):])
	assert.Equal(t, len(processes), len([]string{"/proc:", "its own", "self", "thread-self"}), out)

	status, err := run(t, secret(t), confine.Program{Path: "/usr/bin/cat", Args: []string{"cat", "/proc/self/status"}})
	assert.NilError(t, err, status)
	for _, line := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Uid:\t1900000009\t"} {
		if !strings.Contains(status, line) {
			t.Errorf("no %q in\n%s", line, status)
		}
	}
}

// TestReadAll: the right to read a file of another user is one that a program must be given.
func TestReadAll(t *testing.T) {
	cat := confine.Program{Path: "/usr/bin/cat", Args: []string{"cat", "/proc/self/fd/3"}}
	if out, err := run(t, secret(t), cat); err == nil {
		t.Errorf("it read %q", out)
	}
	cat.ReadAll = true
	out, err := run(t, secret(t), cat)
	assert.NilError(t, err, out)
	assert.Equal(t, out, "read")
}

// TestForbiddenCalls: namespaces and networks stay closed to a program that an image has taken over.
func TestForbiddenCalls(t *testing.T) {
	for _, args := range [][]string{
		{"unshare", "--user", "true"},
		{"unshare", "--mount", "true"},
		{"perl", "-e", "use Socket; socket(my $s, PF_INET, SOCK_STREAM, 0) or die qq($!\n)"},
	} {
		out, err := run(t, secret(t), confine.Program{Path: "/usr/bin/" + args[0], Args: args})
		if err == nil || !strings.Contains(out, "Operation not permitted") {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
}
