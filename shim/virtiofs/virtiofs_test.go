package virtiofs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/virtiofs"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/test/needs"
)

// TestMain is the process that becomes virtiofsd, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "share" {
		fmt.Fprintln(os.Stderr, virtiofs.Enter(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const (
	client = 1_900_060_003
	id     = "0123456789abcdef"
)

func owner() virtiofs.Owner { return virtiofs.Owner{ID: id, Client: client, User: 107} }

// servers returns those of a node, which end with the test, and their folder.
func servers(t *testing.T, programs ...string) (*virtiofs.Servers, string) {
	t.Helper()
	base, err := os.MkdirTemp("", "files-") // a test's own is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "files")
	if err := os.Chmod(base, 0o711); err != nil {
		t.Fatal(err)
	}
	all, err := virtiofs.New(dir, []string{"/proc/self/exe", "share"}, programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := errors.Join(all.Sweep(ctx, func(string) bool { return false }), os.RemoveAll(base)); err != nil {
			t.Error(err)
		}
	})
	return all, dir
}

func TestSuite(t *testing.T) {
	needs.Parts(t, "virtiofsd, and root")
	all, _ := servers(t, virtiofs.Programs()...)
	vmtest.TestFilesystems(t, all, owner(), []virtiofs.Folder{{Path: t.TempDir()}, {Path: t.TempDir(), ReadOnly: true}})
}

// TestConfinement: virtiofsd has no user of the node's, and a mount in which the guest's owners are those on disk.
func TestConfinement(t *testing.T) {
	needs.Parts(t, "virtiofsd, and root")
	all, dir := servers(t, virtiofs.Programs()...)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var pids []int
	err := all.Start(t.Context(), owner(), []virtiofs.Folder{{Path: folder}, {Path: folder, ReadOnly: true}},
		func(pid int) error { pids = append(pids, pid); return nil })
	if err != nil {
		t.Fatal(err)
	}
	root := 0x72000000 + client%3584<<16
	for n, pid := range pids {
		proc := fmt.Sprintf("/proc/%d", pid)
		status, err := os.ReadFile(proc + "/status")
		if want := fmt.Sprintf("Uid:\t%d\t", root); err != nil || !strings.Contains(string(status), want) {
			t.Errorf("no %q in %s, %v", want, status, err)
		}
		for _, name := range []string{"user", "mnt", "net", "ipc"} {
			here, errHere := os.Readlink("/proc/self/ns/" + name)
			there, err := os.Readlink(proc + "/ns/" + name)
			if err = errors.Join(errHere, err); err != nil || here == there {
				t.Errorf("%s namespace %s, %v", name, there, err)
			}
		}
		info, err := os.Stat(filepath.Join(proc, "root", dir, id, fmt.Sprint(n), "file"))
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != root {
			t.Errorf("it sees %+v, %v", info, err)
		}
		mounts, err := os.ReadFile(proc + "/mountinfo")
		mode := []string{" rw,nosuid,nodev,noexec", " ro,nosuid,nodev,noexec"}[n]
		if want := filepath.Join(dir, id, fmt.Sprint(n)) + mode; err != nil || !strings.Contains(string(mounts), want) {
			t.Errorf("no %q in %s, %v", want, mounts, err)
		}
		socket, err := os.Stat(all.Socket(id, n))
		if err != nil || socket.Mode().Perm() != 0o600 || socket.Sys().(*syscall.Stat_t).Uid != client {
			t.Errorf("socket %+v, %v", socket, err)
		}
	}
}

// TestOneUser: on a file system without ID-mapped mounts, such as sysfs, virtiofsd has the rights of one user.
func TestOneUser(t *testing.T) {
	needs.Parts(t, "virtiofsd, and root")
	all, _ := servers(t, virtiofs.Programs()...)
	err := all.Start(t.Context(), owner(), []virtiofs.Folder{{Path: "/sys/kernel", ReadOnly: true}}, func(pid int) error {
		for file, want := range map[string]string{"uid_map": "0 107 1", "gid_map": "0 107 1"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if got := strings.Join(strings.Fields(string(text)), " "); err != nil || got != want {
				t.Errorf("%s is %q, %v, want %q", file, got, err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFailures: an error names the folder or the remedy, and leaves nothing.
func TestFailures(t *testing.T) {
	needs.Parts(t, "root")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(broken, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		program, folder, want string
	}{
		"no program": {"/nonexistent", t.TempDir(), "this node has no virtiofsd; install the package virtiofsd"},
		"no folder":  {"/bin/false", "/nonexistent", "share folder /nonexistent: open_tree: no such file or directory"},
		"a file":     {"/bin/false", file, "not a directory"},
		"ends":       {broken, t.TempDir(), "start " + broken + ": "},
	} {
		t.Run(name, func(t *testing.T) {
			all, dir := servers(t, c.program)
			err := all.Start(t.Context(), owner(), []virtiofs.Folder{{Path: c.folder}}, func(int) error { return nil })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}
