package iscsi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestServe writes and reads through QEMU's own initiator.
func TestServe(t *testing.T) {
	s := start(t)
	target := iscsi.Target{Access: key(t).Access("a"), Path: file(t, 1<<20)}
	for range 2 { // the second finds what the first made
		if err := s.Serve(t.Context(), target); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := qemuIO(t, s.Portal(), target.Access, "write -P 7 4096 512", "flush"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := qemuIO(t, s.Portal(), target.Access, "read -P 7 4096 512", "discard 0 64k", "read -P 0 4096 512")
	if err != nil || strings.Contains(out, "failed") {
		t.Fatalf("%v: %s", err, out)
	}
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]iscsi.Status{{Name: target.Name, Path: target.Path, User: target.User}}, list); d != "" {
		t.Error(d)
	}
}

// TestRefused asks with each part of the access wrong or missing.
func TestRefused(t *testing.T) {
	s := start(t)
	k := key(t)
	right := k.Access("a")
	for id, access := range map[string]iscsi.Access{"a": right, "b": k.Access("b")} {
		target := iscsi.Target{Access: access, Path: file(t, 1<<20)}
		if err := s.Serve(t.Context(), target); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	other := k.Access("b")
	for name, change := range map[string]func(*iscsi.Access){
		"no CHAP":             func(a *iscsi.Access) { a.User = "" },
		"another password":    func(a *iscsi.Access) { a.Password = other.Password },
		"another user":        func(a *iscsi.Access) { a.User = other.User },
		"another's account":   func(a *iscsi.Access) { a.User, a.Password = other.User, other.Password },
		"another initiator":   func(a *iscsi.Access) { a.Initiator = other.Initiator },
		"a usual initiator":   func(a *iscsi.Access) { a.Initiator = "iqn.2008-11.org.linux-kvm:guest" },
		"another's target":    func(a *iscsi.Access) { a.Name = other.Name },
		"a target that isn't": func(a *iscsi.Access) { a.Name = k.Access("c").Name },
	} {
		t.Run(name, func(t *testing.T) {
			wrong := right
			change(&wrong)
			out, err := qemuIO(t, s.Portal(), wrong, "read 0 512")
			if err == nil {
				t.Fatalf("it is let in: %s", out)
			}
			contains(t, out, "Failed to connect to LUN")
		})
	}
	if out, err := qemuIO(t, s.Portal(), right, "read 0 512"); err != nil {
		t.Errorf("the right access: %v: %s", err, out)
	}
}

// TestLibiscsi asks another initiator's tools: to list targets, and to read a disk's size.
func TestLibiscsi(t *testing.T) {
	s := start(t)
	target := iscsi.Target{Access: key(t).Access("a"), Path: file(t, 3<<20)}
	if err := s.Serve(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "LIBISCSI_CHAP_PASSWORD=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	url := func(a iscsi.Access) string {
		return "iscsi://" + a.User + "%" + a.Password.Reveal() + "@" + s.Portal().String() + "/" + a.Name + "/1"
	}
	out, err := run("iscsi-readcapacity16", "-i", target.Initiator, url(target.Access))
	if err != nil {
		t.Errorf("the right access: %v: %s", err, out)
	}
	contains(t, out, "Total size:3145728")
	wrong := target.Access
	wrong.Password = iscsi.NewSecret("abcdefghijklmnop")
	if out, err := run("iscsi-readcapacity16", "-i", target.Initiator, url(wrong)); err == nil {
		t.Errorf("another password: %s", out)
	}
	if out, err := run("iscsi-inq", url(target.Access)); err == nil {
		t.Errorf("the tool's own initiator name: %s", out)
	}
	if out, err := run("iscsi-inq", "-i", target.Initiator, "iscsi://"+s.Portal().String()+"/"+target.Name+"/1"); err == nil {
		t.Errorf("no account: %s", out)
	}
	// Discovery returns no target.
	if out, _ := run("iscsi-ls", "iscsi://"+s.Portal().String()); strings.Contains(out, "iqn.") {
		t.Errorf("discovery without credentials returns targets: %s", out)
	}
}

// TestChanged serves another file by the same name, as after a change of what lies below.
func TestChanged(t *testing.T) {
	s := start(t)
	access := key(t).Access("a")
	for i, path := range []string{file(t, 1<<20), file(t, 2<<20), file(t, 1<<20)} {
		if err := s.Serve(t.Context(), iscsi.Target{Access: access, Path: path, ReadOnly: i == 2}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := qemuIO(t, s.Portal(), access, "read 0 512", "length")
	if err == nil {
		t.Errorf("a disk that can't be written is opened for that: %s", out)
	}
	if err := s.Remove(t.Context(), access); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), access); err != nil {
		t.Errorf("remove what is gone: %v", err)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestRemoveInUse removes a target while a client reads it without end.
func TestRemoveInUse(t *testing.T) {
	s := start(t)
	target := iscsi.Target{Access: key(t).Access("a"), Path: file(t, 64<<20)}
	if err := s.Serve(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	reader := reads(t, s, target.Access)
	wait.Until(t, "the reader is logged in", func() bool {
		list, err := s.List(t.Context())
		return err == nil && len(list) == 1 && len(list[0].Initiators) == 1 && list[0].Initiators[0] == target.Initiator
	})
	if err := s.Remove(t.Context(), target.Access); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	_ = reader.Process.Kill()
}

// reads starts a process that reads a disk for as long as it lives.
func reads(t *testing.T, s *server, a iscsi.Access) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "iscsi-perf", "-i", a.Initiator, "-t", "600", "-m", "8",
		"iscsi://"+a.User+"%"+a.Password.Reveal()+"@"+s.Portal().String()+"/"+a.Name+"/1")
	said, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// It reconnects only once it has logged in and asked for the disk's size.
	lines := bufio.NewReader(said)
	for text := ""; !strings.Contains(text, "iops"); {
		if text, err = lines.ReadString(','); err != nil {
			t.Fatalf("iscsi-perf ended with %q: %v", text, err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return cmd
}

// TestPortTaken has the portal's port taken by another program: tgtd must listen nowhere else.
func TestPortTaken(t *testing.T) {
	s := start(t)
	l, err := net.Listen("tcp", s.Portal().String())
	if err != nil {
		t.Fatal(err)
	}
	target := iscsi.Target{Access: key(t).Access("a"), Path: file(t, 1<<20)}
	err = s.Serve(t.Context(), target)
	if !errors.Is(err, iscsi.ErrPortTaken) {
		t.Errorf("with its port taken: %v", err)
	}
	l.Close()
	if err := s.Serve(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if got := listeners(t, s.cmd.Process.Pid); len(got) != 1 || got[0] != s.Portal().String() {
		t.Errorf("tgtd listens at %v", got)
	}
}

// listeners are the addresses at which a process listens by TCP.
func listeners(t *testing.T, pid int) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ss", "-Hltnp").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.Contains(line, fmt.Sprintf("pid=%d,", pid)) {
			all = append(all, strings.Fields(line)[3])
		}
	}
	return all
}

// TestAway checks that errors say where to look when tgtd doesn't run.
func TestAway(t *testing.T) {
	d := iscsi.New(iscsi.Options{Socket: filepath.Join(t.TempDir(), "none"), Portal: portal()})
	err := d.Serve(t.Context(), iscsi.Target{Access: key(t).Access("a"), Path: "/dev/null"})
	if !errors.Is(err, iscsi.ErrUnavailable) {
		t.Fatal(err)
	}
	contains(t, err.Error(), "nodevirt-tgtd")
	if err := d.Remove(t.Context(), key(t).Access("a")); err != nil {
		t.Errorf("remove from a tgtd that has ended: %v", err)
	}
}

// TestBadTargets refuses what tgtd's requests can't say, and what can't be opened.
func TestBadTargets(t *testing.T) {
	s := start(t)
	k := key(t)
	for name, target := range map[string]iscsi.Target{
		"a comma":       {Access: k.Access("a"), Path: "/tmp/a,path=/etc/shadow"},
		"not absolute":  {Access: k.Access("a"), Path: "disk"},
		"no such file":  {Access: k.Access("a"), Path: "/none/disk"},
		"not a name":    {Access: iscsi.Access{Name: "iqn.a b", Initiator: "iqn.a", User: "abcdefghijkl", Password: iscsi.NewSecret("abcdefghijkl")}, Path: "/tmp/a"},
		"a short word":  {Access: iscsi.Access{Name: "iqn.a", Initiator: "iqn.a", User: "abcdefghijkl", Password: iscsi.NewSecret("short")}, Path: "/tmp/a"},
		"comma in word": {Access: iscsi.Access{Name: "iqn.a", Initiator: "iqn.a", User: "abc,efghijkl", Password: iscsi.NewSecret("abcdefghijkl")}, Path: "/tmp/a"},
	} {
		if err := s.Serve(t.Context(), target); err == nil {
			t.Errorf("%s: it is served", name)
		}
	}
	if list, err := s.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestWatch kills tgtd under a reader. Put back, the target is found again by who used it.
func TestWatch(t *testing.T) {
	s := start(t)
	target := iscsi.Target{Access: key(t).Access("a"), Path: file(t, 1<<20)}
	back := make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, func(ctx context.Context) {
			if err := s.Serve(ctx, target); err != nil {
				t.Error(err)
			}
			back <- struct{}{}
		})
	}()
	<-back
	reads(t, s, target.Access)
	for range 3 {
		wait.Until(t, "the reader is logged in", func() bool {
			list, err := s.List(t.Context())
			return err == nil && len(list) == 1 && len(list[0].Initiators) == 1
		})
		s.kill(t)
		s.run(t)
		<-back
	}
	cancel()
	<-done
}

// TestIdle: a Watch and calls that ended leave no connection on which tgtd works without end.
func TestIdle(t *testing.T) {
	s := start(t)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		back, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			s.Watch(ctx, func(context.Context) { close(back) })
		}()
		<-back
		cancel()
		<-done
	}
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(300))*time.Microsecond)
		_, _ = s.List(ctx)
		cancel()
	}
	processor := func() time.Duration {
		t.Helper()
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(text))
		ticks := 0
		for _, f := range fields[13:15] { // user and system time, see proc(5)
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			ticks += n
		}
		return time.Duration(ticks) * (time.Second / 100)
	}
	wait.Until(t, "tgtd to be idle", func() bool {
		before := processor()
		time.Sleep(time.Second)
		return processor()-before <= 20*time.Millisecond
	})
}

// TestThreads counts what a target costs.
func TestThreads(t *testing.T) {
	s := start(t)
	k := key(t)
	before, memory := cost(t, s)
	const targets = 50
	for i := range targets {
		if err := s.Serve(t.Context(), iscsi.Target{Access: k.Access(strconv.Itoa(i)), Path: file(t, 1<<20)}); err != nil {
			t.Fatal(err)
		}
	}
	threads, after := cost(t, s)
	if each := float64(threads-before) / targets; each != 2 {
		t.Errorf("%v threads a target", each)
	}
	t.Logf("%d targets: %d KiB each, %d KiB in all", targets, (after-memory)/targets, after)
}

func cost(t *testing.T, s *server) (threads, kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) > 1 && f[0] == "Threads:":
			threads, _ = strconv.Atoi(f[1])
		case len(f) > 1 && f[0] == "VmRSS:":
			kib, _ = strconv.Atoi(f[1])
		}
	}
	return threads, kib
}

// TestEnd ends a tgtd that serves.
func TestEnd(t *testing.T) {
	s := start(t)
	if err := s.Serve(t.Context(), iscsi.Target{Access: key(t).Access("a"), Path: file(t, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	if err := s.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("its end: %v", err)
	}
}

// TestKey derives the same again, from a file that only its owner can read.
func TestKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "key")
	first, err := iscsi.OpenKey(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	second, err := iscsi.OpenKey(path)
	if err != nil {
		t.Fatal(err)
	}
	a := first.Access("a")
	if a != second.Access("a") || a == first.Access("b") || a == key(t).Access("a") {
		t.Error("an access is not that of its key and its id")
	}
	if text := fmt.Sprintf("%v %+v %#v %s", a, a, a, a.Password); strings.Contains(text, a.Password.Reveal()) {
		t.Errorf("a password is printed: %s", text)
	}
	if text, err := json.Marshal(a); err == nil {
		t.Errorf("a password is written: %s", text)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := iscsi.OpenKey(path); err == nil {
		t.Error("a key that is too short is taken")
	}
}
