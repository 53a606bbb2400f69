package console

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/needs"
)

// step gives a follower turns at one moment until there is nothing new, and says for how long it
// wants to wait then.
func step(f *follower, now time.Time) time.Duration {
	s := new(scratch)
	for {
		if wait := f.turn(s, now); wait != 0 && wait != gather {
			return wait
		}
	}
}

func opened(t *testing.T, c Console, log *slog.Logger) *follower {
	t.Helper()
	f, err := openFollower(c, 0, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.close() })
	return f
}

func TestPromptAfterSilence(t *testing.T) {
	c := testConsole(t)
	f, qemu := opened(t, c, quiet()), guest(t, c)
	if wait := step(f, noon); wait != -1 {
		t.Errorf("nothing printed: next turn in %v", wait)
	}
	write(t, qemu, "log")
	if wait := step(f, noon); wait != promptAfter {
		t.Errorf("unfinished line: next turn in %v", wait)
	}
	if wait := step(f, noon.Add(promptAfter/4)); wait != promptAfter*3/4 {
		t.Errorf("a quarter of the silence is over: next turn in %v", wait)
	}
	later := noon.Add(promptAfter - 1)
	write(t, qemu, "in: ")
	if wait := step(f, later); wait != promptAfter {
		t.Errorf("it goes on: next turn in %v", wait)
	}
	if log := read(t, c.Log); len(log) != 0 {
		t.Errorf("logged before its time: %q", log)
	}
	if wait := step(f, later.Add(promptAfter)); wait != -1 {
		t.Errorf("prompt logged: next turn in %v", wait)
	}
	if got := parse(t, read(t, c.Log)); len(got) != 1 || !got[0].partial || got[0].text != "login: " {
		t.Errorf("log: %+v", got)
	}
}

func TestConsumedIsFreed(t *testing.T) {
	c := testConsole(t)
	f, qemu := opened(t, c, quiet()), guest(t, c)
	line := strings.Repeat("x", 99) + "\n"
	for range 8 {
		write(t, qemu, strings.Repeat(line, (1<<20)/len(line)+1))
		step(f, noon)
	}
	info, err := os.Stat(c.Raw)
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() < 8<<20 || used > freeStep+freeStep/2 {
		t.Errorf("of %d bytes printed and logged %d are on the disk", info.Size(), used)
	}

	// A lost position costs a repetition of what is not freed, never a log full of NULs.
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Position, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := len(read(t, c.Log))
	again := opened(t, c, quiet())
	write(t, qemu, "after\n")
	step(again, noon)
	repeated := printed(t, read(t, c.Log)[before:])
	if strings.Contains(repeated, "\x00") || len(repeated) > 2*freeStep || !strings.HasSuffix(repeated, "\nafter\n") {
		t.Errorf("%d bytes repeated, ending in %q", len(repeated), repeated[max(0, len(repeated)-20):])
	}
}

// A shim that is killed leaves its files as they are; at worst records are in the log, the last one
// torn, and the position is not in its file: then they are written again.
func TestKilledShim(t *testing.T) {
	c := testConsole(t)
	qemu := guest(t, c)
	write(t, qemu, "one\ntwo, ")
	step(opened(t, c, quiet()), noon)
	before := read(t, c.Position)
	write(t, qemu, "goes on\nthree")
	step(opened(t, c, quiet()), noon)
	if got, want := printed(t, read(t, c.Log)), "one\ntwo, goes on\n"; got != want {
		t.Errorf("killed between two turns: %q, want %q", got, want)
	}

	if err := os.WriteFile(c.Position, before, 0o600); err != nil {
		t.Fatal(err)
	}
	appendTo(t, c.Log, "2026-01-02T12:00:00.0000")
	write(t, qemu, "\n")
	step(opened(t, c, quiet()), noon)
	if got, want := printed(t, read(t, c.Log)), "one\ntwo, goes on\nthree\n"; got != want {
		t.Errorf("killed between log and position: %q, want %q", got, want)
	}

	// A log that was begun since has no record to remove.
	if err := os.Rename(c.Log, c.Log+".rotated"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Log, bytes.Repeat([]byte(noon.Format(stampFormat)+full+"new\n"), 9), 0o640); err != nil {
		t.Fatal(err)
	}
	write(t, qemu, "four\n")
	step(opened(t, c, quiet()), noon)
	if got, want := printed(t, read(t, c.Log)), strings.Repeat("new\n", 9)+"four\n"; got != want {
		t.Errorf("another log: %q, want %q", got, want)
	}
}

func TestShrunkFile(t *testing.T) {
	c := testConsole(t)
	var said bytes.Buffer
	f, qemu := opened(t, c, slog.New(slog.NewTextHandler(&said, nil))), guest(t, c)
	for _, text := range []string{"before\n", "x\n", "y\n"} {
		if err := qemu.Truncate(0); err != nil {
			t.Fatal(err)
		}
		step(f, noon)
		write(t, qemu, text)
		step(f, noon)
	}
	if got := printed(t, read(t, c.Log)); got != "before\nx\ny\n" {
		t.Errorf("logged %q", got)
	}
	if n := strings.Count(said.String(), "has shrunk"); n != 1 {
		t.Errorf("the shim's log says it %d times", n)
	}
}

func TestNoHoles(t *testing.T) {
	c := testConsole(t)
	c.Raw = detached(t, "ramfs", "") + "/console.raw"
	if err := os.WriteFile(c.Raw, bytes.Repeat([]byte("0123456\n"), 3*freeStep/8), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	step(opened(t, c, slog.New(slog.NewTextHandler(&said, nil))), noon)
	if strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), "cannot free") {
		t.Errorf("the shim's log: %s", said.String())
	}
	if got := len(parse(t, read(t, c.Log))); got != 3*freeStep/8 {
		t.Errorf("%d lines logged", got)
	}
}

func TestLagIsBounded(t *testing.T) {
	c := testConsole(t)
	f, qemu := opened(t, c, quiet()), guest(t, c)
	write(t, qemu, "first\nunfinished")
	step(f, noon)
	step(f, noon.Add(promptAfter))
	if err := f.close(); err != nil { // a restart must not forget that a line is open
		t.Fatal(err)
	}
	f = opened(t, c, quiet())
	const unlogged = ", and more"
	write(t, qemu, unlogged)
	step(f, noon)
	jump(t, qemu)
	write(t, qemu, "torn\n"+strings.Repeat("last\n", keepLag/5))
	step(f, noon)

	got := parse(t, read(t, c.Log))
	if got[1].text != "unfinished" || !got[1].partial || got[2].text != "" || got[2].partial {
		t.Errorf("the line that was open: %+v", got[1:3])
	}
	last := got[4:]
	for _, r := range last {
		if r.partial || r.text != "last" {
			t.Fatalf("behind the gap: %+v", r)
		}
	}
	if kept := len(last) * 5; kept > keepLag || kept < keepLag-10 {
		t.Errorf("%d bytes kept", kept)
	}
	dropped := len(unlogged) + maxLag + len("torn\n") + keepLag/5*5 - len(last)*5
	if want := fmt.Sprintf("[nodevirt: %d bytes of console output dropped", dropped); !strings.HasPrefix(got[3].text, want) {
		t.Errorf("notice %q, want %q", got[3].text, want)
	}
}

// jump lets the raw file grow by all that may be unread, at no cost. O_APPEND goes on behind it.
func jump(t *testing.T, qemu *os.File) {
	t.Helper()
	info, err := qemu.Stat()
	if err == nil {
		err = qemu.Truncate(info.Size() + maxLag)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The partial record of a long line does not reach the disk: the line is not open in the log.
func TestLagOnFullDisk(t *testing.T) {
	c := testConsole(t)
	disk := detached(t, "tmpfs", "64k")
	c.Log = disk + "/0.log"
	f, qemu := opened(t, c, quiet()), guest(t, c)
	if err := os.WriteFile(disk+"/filler", make([]byte, 60<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, qemu, strings.Repeat("x", maxLine+10))
	if wait := step(f, noon); wait != retryAfter {
		t.Fatalf("the disk is full: next turn in %v", wait)
	}
	if err := os.Remove(disk + "/filler"); err != nil {
		t.Fatal(err)
	}
	jump(t, qemu)
	write(t, qemu, "\n")
	f.turn(new(scratch), noon.Add(retryAfter))
	if first := parse(t, read(t, c.Log))[0].text; !strings.HasPrefix(first, "[nodevirt: ") {
		t.Errorf("the log begins with %.20q", first)
	}
}

func TestFullDisk(t *testing.T) {
	c := testConsole(t)
	disk := detached(t, "tmpfs", "1m")
	c.Log = disk + "/0.log"
	var said bytes.Buffer
	f, qemu := opened(t, c, slog.New(slog.NewTextHandler(&said, nil))), guest(t, c)
	text := plain(numbered(0, 80_000))
	write(t, qemu, text)
	now := noon
	for range 5 {
		if wait := step(f, now); wait != retryAfter {
			t.Fatalf("the disk is full: next turn in %v", wait)
		}
		if wait := step(f, now.Add(retryAfter/2)); wait != retryAfter/2 {
			t.Fatalf("resting: next turn in %v", wait)
		}
		now = now.Add(retryAfter)
	}
	if n := strings.Count(said.String(), "\n"); n != 1 || !strings.Contains(said.String(), "no space") {
		t.Errorf("the shim's log: %s", said.String())
	}
	first := printed(t, read(t, c.Log)) // whole records, too

	// The kubelet rotates and removes: there is room again, though not for all at once.
	var rest strings.Builder
	for rest.Len() < len(text)-len(first) {
		if err := os.Remove(c.Log); err != nil {
			t.Fatal(err)
		}
		if err := f.reopen(); err != nil {
			t.Fatal(err)
		}
		step(f, now)
		part := printed(t, read(t, c.Log))
		if part == "" {
			t.Fatal("nothing logged after rotation")
		}
		rest.WriteString(part)
	}
	if first+rest.String() != text {
		t.Errorf("%d + %d bytes logged of %d", len(first), rest.Len(), len(text))
	}
}

func TestOpenRefusesLinksAndPipes(t *testing.T) {
	link := func(path string) error { return os.Symlink("/etc/hostname", path) }
	pipe := func(path string) error { return unix.Mkfifo(path, 0o600) }
	for name, test := range map[string]struct {
		at   func(Console) string
		make func(string) error
	}{
		"raw link":      {func(c Console) string { return c.Raw }, link},
		"raw pipe":      {func(c Console) string { return c.Raw }, pipe},
		"position link": {func(c Console) string { return c.Position }, link},
		"log link":      {func(c Console) string { return c.Log }, link},
		"log pipe":      {func(c Console) string { return c.Log }, pipe},
	} {
		t.Run(name, func(t *testing.T) {
			c := testConsole(t)
			c.Log = c.Raw + ".log"
			path := test.at(c)
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if err := test.make(path); err != nil {
				t.Fatal(err)
			}
			if _, err := openFollower(c, 0, quiet()); err == nil {
				t.Error("it was opened")
			}
		})
	}
}

// detached gives a file system of the test's own that is mounted nowhere and goes with the test.
func detached(t *testing.T, kind, size string) string {
	t.Helper()
	needs.Parts(t, "root")
	fsfd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fsfd)
	if size != "" {
		err = unix.FsconfigSetString(fsfd, "size", size)
	}
	if err = errors.Join(err, unix.FsconfigCreate(fsfd)); err != nil {
		t.Fatal(err)
	}
	mount, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	root := os.NewFile(uintptr(mount), kind)
	t.Cleanup(func() { _ = root.Close() })
	return "/proc/self/fd/" + strconv.Itoa(mount)
}
