package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/supervise"
	"github.com/nodevirt/nodevirt/test/needs"
)

// TestMain is a helper process too: it writes its pid file and then sleeps.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-helper" {
		if err := supervise.WritePID(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if strings.HasSuffix(os.Args[2], headless) {
			_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // ends the first thread
		}
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// headless ends the names of pid files of processes whose first thread ends.
const headless = ".headless"

func init() { //nolint:gochecknoinits // only this runs on the first thread for certain
	if len(os.Args) == 3 && os.Args[1] == "-helper" {
		runtime.LockOSThread() // to the first thread
	}
}

// child is a process that writes its pid file itself.
func child(t *testing.T) supervise.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := supervise.Process{
		Name: "helper", Program: self, Args: []string{"-helper", filepath.Join(dir, "pid")},
		PIDFile: filepath.Join(dir, "pid"), Log: filepath.Join(dir, "log"), Grace: time.Minute,
	}
	p.Ready = func(pid int) (bool, error) { // the file of a former process may still be there
		found, err := p.Find()
		return found == pid, err
	}
	return p
}

// daemon is a shell that leaves a process in the background.
func daemon(t *testing.T) supervise.Process {
	t.Helper()
	pidFile := filepath.Join(t.TempDir(), "pid")
	mark := "--mark=" + pidFile
	return supervise.Process{
		Name: "daemon", Program: "sh",
		// The one in the background stays a shell, whose arguments have the mark.
		Args:   []string{"-c", `(exec sh -c 'echo $$ >"$1"; while :; do sleep 0.05; done' sh "$1" "$2") >/dev/null 2>&1 & while ! [ -s "$1" ]; do sleep 0.01; done; sleep 0.1`, "sh", pidFile, mark},
		Daemon: true, PIDFile: pidFile, Argument: mark, Grace: time.Minute,
	}
}

// TestLife starts, finds, watches and ends processes of both sorts.
func TestLife(t *testing.T) {
	withoutFirst := child(t)
	withoutFirst.PIDFile += headless
	withoutFirst.Args[1] = withoutFirst.PIDFile
	withoutFirst.Ready = func(pid int) (bool, error) { // its first thread has ended
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return strings.Contains(string(text), ") Z "), err
	}
	for name, p := range map[string]supervise.Process{"child": child(t), "child without its first thread": withoutFirst, "daemon": daemon(t)} {
		t.Run(name, func(t *testing.T) {
			if pid, err := p.Find(); err != nil || pid != 0 {
				t.Fatalf("before its start: process %d, %v", pid, err)
			}
			if err := p.End(t.Context()); err != nil {
				t.Errorf("end before its start: %v", err)
			}
			pid := start(t, p)
			found := supervise.Process{Name: p.Name, PIDFile: p.PIDFile, Argument: p.Argument, Grace: p.Grace}
			if got, err := found.Find(); err != nil || got != pid {
				t.Errorf("found process %d, %v, want %d", got, err, pid)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := found.Wait(ctx, pid); !errors.Is(err, context.Canceled) {
				t.Errorf("wait with a context that ended: %v", err)
			}
			waited := make(chan error, 1)
			go func() { waited <- found.Wait(t.Context(), pid) }()
			if err := found.End(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-waited; err != nil {
				t.Errorf("wait: %v", err)
			}
			if got, err := p.Find(); err != nil || got != 0 {
				t.Errorf("after its end: process %d, %v", got, err)
			}
			if err := p.Wait(t.Context(), pid); err != nil {
				t.Errorf("wait after its end: %v", err)
			}
			if again := start(t, p); again == pid {
				t.Errorf("started again as process %d", again)
			}
		})
	}
}

// TestConfinement looks at what a process is given.
func TestConfinement(t *testing.T) {
	p := child(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p.Files, p.Namespaces = []*os.File{file}, syscall.CLONE_NEWNS|syscall.CLONE_NEWIPC
	proc := fmt.Sprintf("/proc/%d/", start(t, p))
	if environ, err := os.ReadFile(proc + "environ"); err != nil || string(environ) != "LC_ALL=C\x00" {
		t.Errorf("environment %q, %v", environ, err)
	}
	for link, want := range map[string]string{"cwd": "/", "fd/0": "/dev/null", "fd/1": p.Log, "fd/2": p.Log, "fd/3": file.Name()} {
		if got, err := os.Readlink(proc + link); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", link, got, err, want)
		}
	}
	for name, want := range map[string]bool{"mnt": true, "ipc": true, "net": false} {
		here, errHere := os.Readlink("/proc/thread-self/ns/" + name)
		there, err := os.Readlink(proc + "ns/" + name)
		if err = errors.Join(errHere, err); err != nil || (here != there) != want {
			t.Errorf("%s namespaces %s and %s, %v", name, here, there, err)
		}
	}
	if session := stat(t, proc)[3]; session == stat(t, "/proc/self/")[3] {
		t.Errorf("it is in the session %s of its starter", session)
	}
}

// TestUser starts a process that gets its user from the start.
func TestUser(t *testing.T) {
	p := child(t)
	p.Program, p.Args = "/bin/sh", []string{"-c", "id -u; id -g; id -G; exit 1"}
	p.User = &supervise.User{UID: 1_800_000_001, GID: 1_800_000_002}
	p.Ready = func(int) (bool, error) { return false, nil }
	_, err := p.Start(t.Context())
	f, ok := errors.AsType[*supervise.Failure](err)
	if !ok || !errors.Is(err, supervise.ErrEnded) || f.Output != "1800000001\n1800000002\n1800000002" {
		t.Errorf("error %v", err)
	}
}

// TestFailures has starts that fail. None may leave a process.
func TestFailures(t *testing.T) {
	failed := errors.New("failed")
	for name, tt := range map[string]struct {
		change func(p *supervise.Process)
		limit  time.Duration
		want   error
	}{
		"not ready":    {func(p *supervise.Process) { p.Ready = func(int) (bool, error) { return false, nil } }, 100 * time.Millisecond, context.DeadlineExceeded},
		"ready fails":  {func(p *supervise.Process) { p.Ready = func(int) (bool, error) { return false, failed } }, time.Minute, failed},
		"started":      {func(p *supervise.Process) { p.Started = func(int) error { return failed } }, time.Minute, failed},
		"no pid file":  {func(p *supervise.Process) { p.Program, p.Args = "/bin/sleep", []string{"1000"} }, 100 * time.Millisecond, context.DeadlineExceeded},
		"ends":         {func(p *supervise.Process) { p.Program, p.Args = "/bin/false", nil }, time.Minute, supervise.ErrEnded},
		"no program":   {func(p *supervise.Process) { p.Program = "/nonexistent" }, time.Minute, os.ErrNotExist},
		"no log":       {func(p *supervise.Process) { p.Log = "/nonexistent/log" }, time.Minute, os.ErrNotExist},
		"daemon ended": {func(p *supervise.Process) { p.Daemon, p.Program, p.Args = true, "/bin/true", nil }, time.Minute, supervise.ErrEnded},
	} {
		t.Run(name, func(t *testing.T) {
			p := child(t)
			tt.change(&p)
			var pid int
			ready, started := p.Ready, p.Started
			p.Ready = func(p int) (bool, error) {
				pid = p
				return ready(p)
			}
			p.Started = func(pid int) error {
				if started == nil {
					return nil
				}
				return started(pid)
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
			defer cancel()
			if _, err := p.Start(ctx); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if pid != 0 && syscall.Kill(pid, 0) == nil {
				t.Errorf("process %d is left", pid)
			}
		})
	}
}

// TestFailureOfDaemon has the daemon's words and its exit code.
func TestFailureOfDaemon(t *testing.T) {
	p := daemon(t)
	p.Args = []string{"-c", "echo no socket >&2; exit 3"}
	_, err := p.Start(t.Context())
	if f, ok := errors.AsType[*supervise.Failure](err); !ok || f.Output != "no socket" || err.Error() != "exit status 3: no socket" {
		t.Errorf("error %v", err)
	}
}

// TestStubborn kills a process that ignores SIGTERM.
func TestStubborn(t *testing.T) {
	p := daemon(t)
	p.Args = slices.Clone(p.Args)
	p.Args[1] = strings.Replace(p.Args[1], "while :;", `trap "" TERM; while :;`, 1)
	p.Grace = 2 * time.Second // also for the kernel to end it, on a machine under load
	pid := start(t, p)
	if err := p.End(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := p.Find(); err != nil || got != 0 {
		t.Errorf("process %d of %d, %v", got, pid, err)
	}
}

// TestOthers has pid files of other processes. A pid file may outlive its process: the id can be
// another process's then.
func TestOthers(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for _, argument := range []string{"", "--none"} {
		p := supervise.Process{Name: "other", PIDFile: filepath.Join(t.TempDir(), "pid"), Argument: argument, Grace: time.Second}
		for _, text := range []string{self, self + " ", self + " 1", "1", "0 0", "-1 1", "", "x", "4194304", "4194304 1"} {
			if err := os.WriteFile(p.PIDFile, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if pid, err := p.Find(); err != nil || pid != 0 {
				t.Errorf("pid file with %q: process %d, %v", text, pid, err)
			}
			if err := p.End(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// start starts a process and ends it with the test.
func start(t *testing.T, p supervise.Process) int {
	t.Helper()
	pid, err := p.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := p.End(ctx); err != nil {
			t.Error(err)
		}
	})
	return pid
}

// stat returns the fields of a process's stat from the state on.
func stat(t *testing.T, proc string) []string {
	t.Helper()
	text, err := os.ReadFile(proc + "stat")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.Fields(after)
}

// TestCapabilities: a program that starts as root has the capabilities of its description alone. Neither the caller's
// own nor later processes' are fewer.
func TestCapabilities(t *testing.T) {
	needs.Parts(t, "root")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	owner := func() uint32 {
		var st unix.Stat_t
		if err := unix.Stat(file, &st); err != nil {
			t.Fatal(err)
		}
		return st.Uid
	}
	start := func(keep []uintptr) {
		p := daemon(t)
		p.Args[1] = "chown 65534 '" + file + "'; " + p.Args[1]
		p.Capabilities = keep
		if _, err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.End(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for range 4 {
		if start([]uintptr{unix.CAP_NET_ADMIN}); owner() != 0 {
			t.Fatalf("without CAP_CHOWN the program changed the owner to %d", owner())
		}
	}
	if start(nil); owner() != 65534 {
		t.Errorf("a later program could not change the owner: it is %d", owner())
	}
}
