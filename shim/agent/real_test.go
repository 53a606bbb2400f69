package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/internal/turns"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/needs"
)

// realAgent runs Debian's agent on this machine.
func realAgent(t *testing.T, args ...string) *Agent {
	t.Helper()
	needs.Parts(t, "a Debian mirror")
	files, err := guest.Agent(t.Context(), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := socket(t)
	dir := filepath.Dir(path)
	for name, data := range files.Libraries {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "qemu-ga")
	if err := os.WriteFile(program, files.Programs["qemu-ga"], 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "ld-linux-x86-64.so.2"), append([]string{"--library-path", dir, program,
		"--method=unix-listen", "--path=" + path, "--statedir=" + dir}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := New(Options{Socket: path, Large: turns.New("others", 1, 1)})
	t.Cleanup(func() {
		a.Port.Report(Absent)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if listens(t, path) {
			return a
		} else if time.Since(begun) > 3*time.Minute {
			t.Fatalf("nothing listens on %s", path)
		}
	}
}

// listens reports whether a program listens on a socket, which is there a moment before it does. The
// agent takes one client, so this does not connect.
func listens(t *testing.T, path string) bool {
	t.Helper()
	const accepts = " 00010000 " // proc(5): the flags of /proc/net/unix
	all, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(strings.Split(string(all), "\n"), func(line string) bool {
		return strings.HasSuffix(line, " "+path) && strings.Contains(line, accepts)
	})
}

// TestRefused: the guest's administrator has the agent refuse a command.
func TestRefused(t *testing.T) {
	for args, want := range map[string][]string{"--blacklist=guest-exec": nil, "--blacklist=guest-shutdown,guest-get-users": {"guest-shutdown", "guest-get-users"}} {
		a := realAgent(t, args)
		a.Facts.Refresh(t.Context())
		if got := a.Facts.State().Refused; !slices.Equal(got, want) {
			t.Errorf("%s: the agent refuses %q, want %q", args, got, want)
		}
	}
}

func TestARealAgent(t *testing.T) {
	a := realAgent(t)
	noise := bytes.Repeat([]byte{0, 1, 0xff, '\n'}, 100_000)
	r, err := a.Commands.Exec(t.Context(), Command{Args: []string{"sh", "-c", "cat; echo err >&2; exit 3"}, Input: noise})
	if err != nil || r.Code != 3 || !bytes.Equal(r.Stdout, noise) || string(r.Stderr) != "err\n" {
		t.Errorf("%d bytes, %q, code %d, %v", len(r.Stdout), r.Stderr, r.Code, err)
	}
	r, err = a.Commands.Exec(t.Context(), Command{Args: []string{"head", "-c", fmt.Sprint(maxStream + 1), "/dev/zero"}})
	if err != nil || !r.StdoutTruncated || len(r.Stdout) != maxStream {
		t.Errorf("of a flood came %d bytes, truncated %t, %v", len(r.Stdout), r.StdoutTruncated, err)
	}
	if _, err := a.Commands.Exec(t.Context(), Command{Args: []string{"/no/such/program"}}); !errors.Is(err, ErrNoProgram) {
		t.Errorf("no such program: %v", err)
	}
	for _, c := range []Command{
		{}, {Args: []string{""}}, {Args: []string{"a\x00b"}}, {Args: []string{"\xff"}},
		{Args: []string{strings.Repeat("x", maxArguments)}}, {Args: []string{"cat"}, Input: make([]byte, MaxInput+1)},
	} {
		if _, err := a.Commands.Exec(t.Context(), c); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: %v", c.Args, err)
		}
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r, err := a.Commands.Exec(t.Context(), Command{Args: []string{"sh", "-c", fmt.Sprintf("sleep 0.2; echo %d", i)}})
			if err != nil || string(r.Stdout) != fmt.Sprintln(i) {
				t.Errorf("command %d: %q, %v", i, r.Stdout, err)
			}
		})
	}
	all.Wait()
	a.Facts.Refresh(t.Context())
	if s := a.Facts.State(); s.Problem != "" || s.Version == "" || s.OS == nil || s.OS.Kernel == "" || s.Hostname == "" {
		t.Errorf("state %+v", s)
	}
}

// A command whose caller no longer waits ends with its children.
func TestTheEndOfTheWait(t *testing.T) {
	a := realAgent(t)
	mark := filepath.Join(t.TempDir(), "alive")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() {
		for { // once the grandchild writes
			if _, err := os.Stat(mark); err == nil {
				cancel(why)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	_, err := a.Commands.Exec(ctx, Command{Args: []string{"sh", "-c", `sh -c 'while :; do echo >"$0"; sleep 0.01; done' "$0"; true`, mark}})
	if !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	// What was killed ends when it next has a processor, and may write again by then.
	for begun := time.Now(); ; {
		if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if _, err := os.Stat(mark); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("the command's child runs on")
		}
	}
}

func TestADisabledCommand(t *testing.T) {
	a := realAgent(t, "--blacklist=guest-exec,guest-get-osinfo")
	if _, err := a.Commands.Exec(t.Context(), Command{Args: []string{"true"}}); !errors.Is(err, ErrDisabled) {
		t.Errorf("error %v", err)
	}
	a.Facts.Refresh(t.Context())
	if s := a.Facts.State(); !strings.Contains(s.Problem, "guest-get-osinfo") || s.Version == "" || s.Updated.IsZero() {
		t.Errorf("state %+v", s)
	}
}

func TestTime(t *testing.T) {
	a := realAgent(t, "--blacklist=guest-set-time") // it would set this machine's clock
	ahead, margin, err := a.Queries.Time(t.Context())
	if err != nil || ahead.Abs() > margin {
		t.Errorf("ahead by %s within %s, %v", ahead, margin, err)
	}
	if wrong, err := a.FollowTime(t.Context(), 0); err != nil || wrong != 0 {
		t.Errorf("wrong by %s, %v", wrong, err)
	}
	if _, err := a.FollowTime(t.Context(), time.Hour); !errors.Is(err, ErrDisabled) {
		t.Errorf("a clock that cannot be set: %v", err)
	}
}
