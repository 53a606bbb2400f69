package rawview_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/shim/supervise"
	"github.com/nodevirt/nodevirt/test/needs"
)

// TestMain is the stage of views, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-enter" {
		fmt.Fprintln(os.Stderr, rawview.Enter(os.Args[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const uid = 1_800_000_001

type views struct {
	*rawview.Views
	ended chan string
}

func newViews(t *testing.T) views {
	t.Helper()
	needs.Parts(t, "root, qemu-storage-daemon")
	v := views{ended: make(chan string, 10)}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	v.Views = rawview.New(rawview.Options{
		Dir: filepath.Join(t.TempDir(), "views"), StorageDaemon: "/usr/bin/qemu-storage-daemon", Stage: []string{self, "-enter"},
		Ended: func(id string) { v.ended <- id }, Logger: slog.New(slog.DiscardHandler),
	})
	return v
}

// disk makes a base with random content, with a mode, and an overlay on it.
func disk(t *testing.T, id string, mode os.FileMode) (rawview.View, *os.File, []byte) {
	t.Helper()
	needs.Parts(t, "QEMU")
	content := make([]byte, 2<<20)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	dir := t.TempDir()
	base := filepath.Join(dir, "base.raw")
	if err := os.WriteFile(base, content, mode); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.qcow2")
	out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-u", "-b", "nodevirt-image:x", "-F", "raw", overlay, "2M").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return rawview.View{ID: id, Overlay: overlay, BaseFormat: "raw", UID: uid, GID: uid}, f, content
}

// TestShow reads and writes by the raw file, of a base that all users can read and of one that
// only root can.
func TestShow(t *testing.T) {
	for name, mode := range map[string]os.FileMode{"readable": 0o644, "private": 0o400} {
		t.Run(name, func(t *testing.T) {
			v := newViews(t)
			view, base, content := disk(t, name, mode)
			pid, err := v.Show(t.Context(), view, base)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { hide(t, v, name) })
			if again, err := v.Show(t.Context(), view, base); err != nil || again != pid {
				t.Errorf("shown again: %d, %v", again, err)
			}
			same(t, rawview.Path(pid), content)
			write(t, rawview.Path(pid), content, 1000, "hello")
			same(t, rawview.Path(pid), content)
			confined(t, pid)
			hide(t, v, name)
			if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/dev/disk", pid)); err == nil {
				t.Error("it is still shown")
			}
			// The overlay holds what was written, for the process that opens it
			// next.
			if pid, err = v.Show(t.Context(), view, base); err != nil {
				t.Fatal(err)
			}
			same(t, rawview.Path(pid), content)
			if info, err := base.Stat(); err != nil || info.Mode().Perm() != mode {
				t.Errorf("the base is now %v, %v", info.Mode(), err)
			}
		})
	}
}

// TestKilled kills the process after a write that was not flushed.
func TestKilled(t *testing.T) {
	v := newViews(t)
	view, base, content := disk(t, "killed", 0o644)
	t.Cleanup(func() { hide(t, v, "killed") })
	for i := range 5 {
		pid, err := v.Show(t.Context(), view, base)
		if err != nil {
			t.Fatal(err)
		}
		same(t, rawview.Path(pid), content)
		write(t, rawview.Path(pid), content, i*200_000, strings.Repeat(fmt.Sprintf("write %d", i), 10_000))
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if id := <-v.ended; id != "killed" {
			t.Errorf("reported %q", id)
		}
	}
}

// TestFound finds a process that another caller started.
func TestFound(t *testing.T) {
	v := newViews(t)
	view, base, _ := disk(t, "found", 0o644)
	pid, err := v.Show(t.Context(), view, base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hide(t, v, "found") })
	if list, err := v.List(); err != nil || len(list) != 1 || list[0] != "found" {
		t.Errorf("%v, %v", list, err)
	}
	if found, err := v.Process("found"); err != nil || found != pid {
		t.Errorf("found %d, %v", found, err)
	}
	if none, err := v.Process("none"); err != nil || none != 0 {
		t.Errorf("found %d, %v", none, err)
	}
	hide(t, v, "found")
	hide(t, v, "found")
	select {
	case id := <-v.ended:
		t.Errorf("reported %q, which was hidden", id)
	case <-time.After(50 * time.Millisecond):
	}
}

// TestFails has an overlay that is none.
func TestFails(t *testing.T) {
	v := newViews(t)
	view, base, _ := disk(t, "fails", 0o644)
	if err := os.WriteFile(view.Overlay, []byte("no qcow2"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := v.Show(t.Context(), view, base)
	if !errors.Is(err, supervise.ErrEnded) || !strings.Contains(err.Error(), "not in qcow2 format") {
		t.Errorf("shown: %v", err)
	}
	if list, err := v.List(); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	view.ID = "../x"
	if _, err := v.Show(t.Context(), view, base); err == nil {
		t.Error("a name that leaves the folder is taken")
	}
}

// TestGivenUp: a process that is given up before it has come to anything is not left behind.
func TestGivenUp(t *testing.T) {
	v := rawview.New(rawview.Options{
		Dir: filepath.Join(t.TempDir(), "views"), StorageDaemon: "/usr/bin/qemu-storage-daemon",
		Stage: []string{"sh", "-c", "exec sleep 1000"}, Logger: slog.New(slog.DiscardHandler),
	})
	view, base, _ := disk(t, "slow", 0o644)
	ctx, cancel := context.WithCancel(t.Context())
	var pid int
	view.Started = func(started int) error {
		pid = started
		cancel()
		return nil
	}
	if _, err := v.Show(ctx, view, base); !errors.Is(err, context.Canceled) || pid == 0 {
		t.Fatalf("process %d, %v", pid, err)
	}
	for end := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("its process runs on")
		}
	}
}

func hide(t *testing.T, v views, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
	defer cancel()
	if err := v.Hide(ctx, id); err != nil {
		t.Error(err)
	}
}

func same(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the raw file has other content")
	}
}

// write writes to the raw file and to what it should be.
func write(t *testing.T, path string, content []byte, at int, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(text), int64(at)); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	copy(content[at:], text)
}

// confined looks at what the process could do.
func confined(t *testing.T, pid int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		k, v, _ := strings.Cut(line, ":")
		status[k] = strings.Join(strings.Fields(v), " ")
	}
	user := fmt.Sprintf("%d %[1]d %[1]d %[1]d", uid)
	if status["Uid"] != user || status["Gid"] != user || status["Groups"] != "" || status["NoNewPrivs"] != "1" {
		t.Errorf("it runs as %q, %q, groups %q, no_new_privs %s", status["Uid"], status["Gid"], status["Groups"], status["NoNewPrivs"])
	}
	const readAll = "0000000000000004"
	if c := status["CapEff"]; c != "0000000000000000" && c != readAll {
		t.Errorf("capabilities %s", c)
	}
	for _, path := range []string{"/root", "/tmp", "/var", "/home", "/etc/passwd", "/dev/fuse"} {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, path)); err == nil {
			t.Errorf("it sees %s", path)
		}
	}
}

// TestNoProgram checks that the error names what to install, and that nothing
// is left.
func TestNoProgram(t *testing.T) {
	for _, tt := range []struct {
		daemon, stage string
		want          error
	}{
		{"/none/qemu-storage-daemon", "/bin/true", rawview.ErrNoProgram},
		{"/usr/bin/qemu-storage-daemon", "/none/nodevirt-view", rawview.ErrNoStage},
	} {
		v := rawview.New(rawview.Options{
			Dir: filepath.Join(t.TempDir(), "views"), StorageDaemon: tt.daemon, Stage: []string{tt.stage}, Logger: slog.New(slog.DiscardHandler),
		})
		view, base, _ := disk(t, "none", 0o644)
		if _, err := v.Show(t.Context(), view, base); !errors.Is(err, tt.want) {
			t.Errorf("without the program: %v, want %v", err, tt.want)
		}
		if left, err := v.List(); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}
