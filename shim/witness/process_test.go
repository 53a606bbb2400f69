package witness_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/witness"
	"github.com/nodevirt/nodevirt/test/loopdev"
	"github.com/nodevirt/nodevirt/test/needs"
)

// user is one that no other process has.
const user = 3_987_654_001

var node = witness.Node{FirstUID: user, UIDs: 3}

// start starts a process that executes QEMU, by its name, as a VM's user.
func start(t *testing.T, uid uint32, script string, args ...string) *exec.Cmd {
	t.Helper()
	return startProgram(t, emulator(t), 0, uid, script, args...)
}

// help starts another process of a VM's user.
func help(t *testing.T, uid uint32, script string, args ...string) *exec.Cmd {
	t.Helper()
	return startProgram(t, "/bin/sh", 0, uid, script, args...)
}

// emulator returns a shell with QEMU's name.
func emulator(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "qemu-system-test")
	if err := os.WriteFile(path, shell, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func startProgram(t *testing.T, shell string, namespaces uintptr, uid uint32, script string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), shell, append([]string{"-c", script}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Cloneflags: namespaces}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

const (
	// lives runs until it is killed; builtins alone, since a child would be a process of the user too.
	lives = `echo; while :; do read x < /dev/null; done`
	// deaf ignores SIGTERM.
	deaf = `trap "" TERM; ` + lives
)

func argv(name string) []string {
	return []string{"qemu", "-name", "guest=" + name + ",debug-threads=on", "-uuid", "7f0c"}
}

func find(t *testing.T) []witness.Process {
	t.Helper()
	return scan(t).Processes()
}

func scan(t *testing.T) *witness.Scan {
	t.Helper()
	s, err := node.Scan()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestProcesses(t *testing.T) {
	needs.Parts(t, "root")
	if all := find(t); len(all) != 0 {
		t.Fatalf("before the test: %+v", all)
	}
	guest := start(t, user, lives, argv("default_web_012345678901")...)
	helper := help(t, user+1, lives, argv("not-by-its-arguments")...)
	start(t, user+3, lives, argv("beyond")...) // of no VM's user
	byPID := map[int]witness.Process{}
	for _, p := range find(t) {
		byPID[p.PID] = p
	}
	g, h := byPID[guest.Process.Pid], byPID[helper.Process.Pid]
	if len(byPID) != 2 || !g.Emulator || g.UID != user || g.Domain != "default_web_012345678901" || g.UUID != "7f0c" || h.Emulator || h.UID != user+1 {
		t.Errorf("found %+v", byPID)
	}
	for name, c := range map[string]struct {
		id   witness.Identity
		want witness.Presence
	}{
		"by its user":            {witness.Identity{Container: "a", UID: user}, witness.Present},
		"of a user without QEMU": {witness.Identity{UID: user + 1}, witness.Absent},
		"of an unknown user":     {witness.Identity{Container: "a"}, witness.Absent},
		"of nothing":             {witness.Identity{}, witness.Absent},
	} {
		if got := witness.Of(find(t), c.id); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	users, err := node.Users()
	if err != nil || len(users) != 2 || !users[user] || !users[user+1] {
		t.Errorf("users %v, %v", users, err)
	}
	// A zombie has closed its files.
	if err := guest.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for witness.Of(find(t), witness.Identity{UID: user}) == witness.Present {
		time.Sleep(time.Millisecond)
	}
}

func TestEnd(t *testing.T) {
	needs.Parts(t, "root")
	other := start(t, user+1, lives, argv("other")...)
	for _, script := range []string{lives, deaf} {
		guest := start(t, user, script, argv("one")...)
		p := find(t)
		watched := make(chan error, 1)
		for _, one := range p {
			if one.PID == guest.Process.Pid {
				go func() { watched <- node.AwaitEnd(context.Background(), one) }()
			}
		}
		if err := node.End(t.Context(), witness.Identity{UID: user}); err != nil {
			t.Fatal(err)
		}
		if err := <-watched; err != nil {
			t.Error(err)
		}
		all := find(t)
		if witness.Of(all, witness.Identity{UID: user}) != witness.Absent || witness.Of(all, witness.Identity{UID: user + 1}) != witness.Present {
			t.Errorf("left: %+v", all)
		}
	}
	if err := node.End(t.Context(), witness.Identity{UID: user}); err != nil {
		t.Errorf("of one that does not run: %v", err)
	}
	// Another process with the ID of one that has ended.
	gone := witness.Process{PID: other.Process.Pid, UID: user}
	if err := node.AwaitEnd(t.Context(), gone); err != nil {
		t.Error(err)
	}
}

// TestStrangers: an ordinary container's process, which can have any user ID, name and arguments, is no VM's QEMU, keeps
// no VM disputed, holds no network disk and is not ended. Its user ID is in use, and a file that it has open is.
func TestStrangers(t *testing.T) {
	needs.Parts(t, "root")
	disk := filepath.Join(t.TempDir(), "disk.img")
	qemu := emulator(t)
	if err := os.WriteFile(disk, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(disk, 0o666), os.Chmod(filepath.Dir(disk), 0o755)); err != nil {
		t.Fatal(err)
	}
	lun := append(argv("default_victim_0123"), "-blockdev", `{"driver":"iscsi","target":"iqn.2026-11.com.example:x","lun":1}`)
	stranger := startProgram(t, qemu, unix.CLONE_NEWPID, user, "exec 5<>"+disk+"; "+deaf, lun...)
	other := startProgram(t, qemu, unix.CLONE_NEWPID, user+9, lives, lun...)
	seen := scan(t)
	if all := seen.Processes(); len(all) != 0 || witness.Of(all, witness.Identity{UID: user}) != witness.Absent {
		t.Errorf("VMs' processes: %+v", all)
	}
	if all := seen.Remotes(func(witness.RemoteDisk) bool { return true }); len(all) != 0 {
		t.Errorf("over the network: %v", all)
	}
	if users := seen.Users(); len(users) != 1 || !users[user] {
		t.Errorf("users %v", users)
	}
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, _, err := witness.FileOf(f)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := seen.Holders(file); err != nil || len(found) != 1 || found[0].PID != stranger.Process.Pid {
		t.Errorf("held by %v, %v", found, err)
	}
	if err := node.End(t.Context(), witness.Identity{Container: "a", UID: user}); err != nil {
		t.Error(err)
	}
	for _, p := range []*exec.Cmd{stranger, other} {
		if err := unix.Kill(p.Process.Pid, 0); err != nil {
			t.Errorf("process %d: %v", p.Process.Pid, err)
		}
	}
}

// TestEndsTogether: processes that ignore SIGTERM take the time of one.
func TestEndsTogether(t *testing.T) {
	needs.Parts(t, "root")
	for range 3 {
		start(t, user, deaf, argv("one")...)
	}
	began := time.Now()
	if err := node.End(t.Context(), witness.Identity{UID: user}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 4*time.Second || took > 9*time.Second {
		t.Errorf("took %v", took)
	}
	if all := find(t); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
}

// TestHolders: by each node of the device, whichever name that has.
func TestHolders(t *testing.T) {
	needs.Parts(t, "root")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	loop := loopDevice(t)
	var st unix.Stat_t
	if err := unix.Stat(loop, &st); err != nil {
		t.Fatal(err)
	}
	device := witness.Device(st.Rdev)
	found, err := scan(t).Holders(device)
	if err != nil || len(found) != 0 {
		t.Fatalf("held by %v, %v", found, err)
	}
	second := filepath.Join("/dev", "nodevirt-witness-test-"+filepath.Base(dir)+filepath.Base(loop))
	if err := unix.Mknod(second, unix.S_IFBLK|0o666, int(st.Rdev)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(second) })
	if err := os.Chmod(second, 0o666); err != nil {
		t.Fatal(err)
	}
	writer := start(t, user, "exec 5<>"+second+"; "+lives, argv("writer")...)
	reader := start(t, user+1, "exec 5<"+second+"; "+lives, argv("reader")...)
	found, err = scan(t).Holders(device)
	if err != nil {
		t.Fatal(err)
	}
	writes := map[int]bool{}
	for _, h := range found {
		writes[h.PID] = h.Writes
	}
	if w, there := writes[writer.Process.Pid]; !there || !w {
		t.Errorf("the writer is not found: %v", found)
	}
	if w, there := writes[reader.Process.Pid]; !there || w || len(found) != 2 {
		t.Errorf("the reader is not found: %v", found)
	}
	for _, h := range found {
		if h.Writes && !strings.Contains(h.String(), "of domain writer") {
			t.Errorf("named %q", h)
		}
	}
}

// loopDevice returns a block device of the test's own.
func loopDevice(t *testing.T) string {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "disk"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	loop, err := loopdev.Attach(file, unix.LO_FLAGS_AUTOCLEAR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loop.Close() })
	return loop.Name()
}

// TestHoldersOfAFile: by each mount of its file system, and only while it is open.
func TestHoldersOfAFile(t *testing.T) {
	needs.Parts(t, "root")
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	for _, path := range []string{filepath.Dir(dir), dir, first, second} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(first, second, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(second, unix.MNT_DETACH) })
	for _, name := range []string{"disk.img", "other.img"} {
		if err := os.WriteFile(filepath.Join(first, name), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(first, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	writer := start(t, user, "exec 5<>"+filepath.Join(second, "disk.img")+"; "+lives, argv("writer")...)
	for name, want := range map[string]int{"disk.img": 1, "other.img": 0} {
		f, err := os.Open(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		file, ok, err := witness.FileOf(f)
		if err != nil || !ok {
			t.Fatal(file, ok, err)
		}
		found, err := scan(t).Holders(file)
		if err != nil || len(found) != want || want > 0 && (found[0].PID != writer.Process.Pid || !found[0].Writes) {
			t.Errorf("%s is held by %v, %v", name, found, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHoldersOfOtherUsers: a QEMU of another user, as of another shim's VM or of the administrator's, holds its disks
// too, but is no VM's.
func TestHoldersOfOtherUsers(t *testing.T) {
	needs.Parts(t, "root")
	dir := t.TempDir()
	for _, path := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	disk := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(disk, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(disk, 0o666); err != nil {
		t.Fatal(err)
	}
	hold := "exec 5<>" + disk + "; " + lives
	foreign := start(t, user+7, hold, append(argv("theirs"), "-blockdev", `{"driver":"iscsi","target":"iqn.2026-11.com.example:x","lun":1}`)...)
	help(t, user+8, hold)
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, _, err := witness.FileOf(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := scan(t)
	found, err := seen.Holders(file)
	if err != nil || len(found) != 1 || found[0].PID != foreign.Process.Pid {
		t.Errorf("held by %v, %v", found, err)
	}
	if all := seen.Processes(); len(all) != 0 {
		t.Errorf("VMs' processes: %v", all)
	}
	if all := seen.Remotes(func(d witness.RemoteDisk) bool { return d.LUN == 1 }); len(all) != 1 || all[0].PID != foreign.Process.Pid || !all[0].Writes {
		t.Errorf("over the network: %v", all)
	}
}
