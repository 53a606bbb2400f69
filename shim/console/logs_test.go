package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

func logs(t *testing.T) *Logs {
	t.Helper()
	l, err := New(0, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func following(t *testing.T, c Console) *Logs {
	t.Helper()
	l := logs(t)
	if err := l.Follow(c); err != nil {
		t.Fatal(err)
	}
	return l
}

// numbered is what the guests of these tests print: each line holds its
// position.
func numbered(from, to int) string {
	var text strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&text, "line %d\r\n", i)
	}
	return text.String()
}

func plain(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

func TestFollow(t *testing.T) {
	c := testConsole(t)
	l := following(t, c)
	info, err := os.Stat(c.Log)
	if err != nil || info.Mode() != 0o640 || info.Size() != 0 {
		t.Fatalf("the log before anything is printed: %v, %v", info, err)
	}
	qemu := guest(t, c)
	write(t, qemu, "boot\r\nlogin: ")
	wait.Until(t, "the prompt", func() bool { return printed(t, read(t, c.Log)) == "boot\nlogin: " })
	write(t, qemu, "root\r\n")
	wait.Until(t, "the rest of its line", func() bool { return printed(t, read(t, c.Log)) == "boot\nlogin: root\n" })

	if err := l.Follow(c); err != nil {
		t.Errorf("following it again: %v", err)
	}
	other := c
	other.Log += ".1"
	if err := l.Follow(other); err == nil {
		t.Error("one container has two logs")
	}
	other.ID = "vm2"
	if err := l.Follow(other); err == nil {
		t.Error("two containers have one console file")
	}
	other.Raw += ".missing"
	if err := l.Follow(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no console file: %v", err)
	}
}

// TestUnlogged: of a console that is kept out of its log, the file of the log is there, and the raw file stays small.
func TestUnlogged(t *testing.T) {
	c := testConsole(t)
	c.Unlogged = true
	l := following(t, c)
	write(t, guest(t, c), numbered(0, 500_000))
	assert.NilError(t, l.Finish(t.Context(), c.ID))
	assert.Equal(t, len(read(t, c.Log)), 0)
	raw, err := os.Stat(c.Raw)
	assert.NilError(t, err)
	held := raw.Sys().(*syscall.Stat_t).Blocks * 512
	assert.Assert(t, held > 0 && held <= freeStep+freeStep/2 && raw.Size() > 2*freeStep, "%d bytes of %d", held, raw.Size())
}

func TestFinish(t *testing.T) {
	c := testConsole(t)
	l := following(t, c)
	text := numbered(0, 100_000) + "Power down\r"
	write(t, guest(t, c), text)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Finish(ended, c.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("Finish without time: %v", err)
	}
	for range 2 {
		if err := l.Finish(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := printed(t, read(t, c.Log)); got != plain(text) {
		t.Errorf("%d bytes logged, want %d", len(got), len(plain(text)))
	}
	if err := l.Reopen(c.ID); !errors.Is(err, ErrNotFollowed) {
		t.Errorf("Reopen of a finished console: %v", err)
	}

	// A shim that died before it had recorded the end finishes again.
	if err := l.Follow(c); err != nil {
		t.Fatal(err)
	}
	if err := l.Finish(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	if got := printed(t, read(t, c.Log)); got != plain(text) {
		t.Error("finishing twice has changed the log")
	}
}

// TestDrop: what the log has no room for is dropped, and counted.
func TestDrop(t *testing.T) {
	c := testConsole(t)
	l := following(t, c)
	write(t, guest(t, c), "first\r\n")
	wait.Until(t, "the first line", func() bool { return printed(t, read(t, c.Log)) == "first\n" })
	l.byID[c.ID].mu.Lock()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	assert.NilError(t, err)
	assert.NilError(t, l.byID[c.ID].out.close())
	l.byID[c.ID].out = &logFile{full}
	l.byID[c.ID].mu.Unlock()
	write(t, guest(t, c), "rest\r\n")
	if err := l.Finish(t.Context(), c.ID); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Finish with a full disk: %v", err)
	}
	for _, want := range []int64{int64(len("rest\r\n")), 0} {
		lost, err := l.Drop(c.ID)
		assert.NilError(t, err)
		assert.Equal(t, lost, want)
	}
	assert.NilError(t, l.Finish(t.Context(), c.ID))
	assert.Equal(t, printed(t, read(t, c.Log)), "first\n")
}

// The guest prints on while the shim is restarted and the kubelet rotates the log.
func TestRestartAndRotation(t *testing.T) {
	c := testConsole(t)
	l := following(t, c)
	qemu := guest(t, c)
	const rounds, perRound = 30, 2000
	var printing sync.WaitGroup
	printing.Go(func() {
		for i := range rounds {
			text := numbered(i*perRound, (i+1)*perRound)
			for len(text) > 0 { // in pieces that don't end with a line
				n := min(len(text), 1000+i)
				if _, err := qemu.WriteString(text[:n]); err != nil {
					t.Error(err)
					return
				}
				text = text[n:]
			}
		}
	})
	rotated := filepath.Join(filepath.Dir(c.Log), "rotated")
	for i := range 10 {
		if err := os.Rename(c.Log, fmt.Sprint(rotated, i)); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := l.Reopen(c.ID); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = following(t, c)
	}
	printing.Wait()
	if err := l.Finish(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for i := range 10 {
		all = append(all, read(t, fmt.Sprint(rotated, i))...)
	}
	all = append(all, read(t, c.Log)...)
	if got, want := printed(t, all), plain(numbered(0, rounds*perRound)); got != want {
		t.Errorf("%d bytes logged, want %d", len(got), len(want))
	}
}

// A log that is not rotated is set aside at its limit; the one that was set aside before goes.
func TestLimit(t *testing.T) {
	c := testConsole(t)
	const limit = 400 << 10
	l, err := New(limit, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := l.Follow(c); err != nil {
		t.Fatal(err)
	}
	text := plain(numbered(0, 50_000))
	write(t, guest(t, c), text)
	if err := l.Finish(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	aside, last := read(t, c.Log+asideSuffix), read(t, c.Log)
	if got := printed(t, aside) + printed(t, last); !strings.HasSuffix(text, got) || len(aside) < limit/2 {
		t.Errorf("%d bytes set aside, %d in the log; they do not end as what was printed", len(aside), len(last))
	}
	for _, log := range [][]byte{aside, last} {
		if len(log) > limit {
			t.Errorf("a log of %d bytes", len(log))
		}
	}
}

// What the kubelet has renamed already is not set aside, and is no hindrance.
func TestLimitWhileRotating(t *testing.T) {
	c := testConsole(t)
	f, err := openFollower(c, 1000, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.close() })
	qemu := guest(t, c)
	write(t, qemu, numbered(0, 10))
	step(f, noon)
	if err := os.Rename(c.Log, c.Log+".rotated"); err != nil {
		t.Fatal(err)
	}
	write(t, qemu, numbered(10, 30))
	step(f, noon)
	if got := printed(t, read(t, c.Log+".rotated")) + printed(t, read(t, c.Log)); got != plain(numbered(0, 30)) {
		t.Errorf("logged %q", got)
	}
	if _, err := os.Stat(c.Log + asideSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("set aside: %v", err)
	}
}

func TestReopenFails(t *testing.T) {
	c := testConsole(t)
	l := following(t, c)
	aside := c.Log + ".aside"
	if err := os.Rename(c.Log, aside); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(c.Log, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(c.ID); err == nil {
		t.Error("a folder was opened as a log")
	}
	write(t, guest(t, c), "still here\n")
	wait.Until(t, "a line in the old file", func() bool { return printed(t, read(t, aside)) == "still here\n" })
}

// One guest prints without end; all others get through, and so does the end of that one.
func TestManyConsoles(t *testing.T) {
	l := logs(t)
	endless := testConsole(t)
	endless.ID = "endless"
	if err := l.Follow(endless); err != nil {
		t.Fatal(err)
	}
	qemu := guest(t, endless)
	yes := strings.Repeat("y", maxLine)
	stop := make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() {
		for chunk := strings.Repeat(yes+"\n", 8); ; {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := qemu.WriteString(chunk); err != nil {
				t.Error(err)
				return
			}
		}
	})
	stopped := sync.OnceFunc(func() { close(stop); printing.Wait() })
	t.Cleanup(stopped)

	var consoles []Console
	for i := range 60 {
		c := testConsole(t)
		c.ID = fmt.Sprint("vm", i)
		if i%2 == 0 { // printed before: no event reports it
			write(t, guest(t, c), "I am "+c.ID+"\n")
		}
		if err := l.Follow(c); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			write(t, guest(t, c), "I am "+c.ID+"\n")
		}
		consoles = append(consoles, c)
	}
	for _, c := range consoles {
		wait.Until(t, c.ID, func() bool { return printed(t, read(t, c.Log)) == "I am "+c.ID+"\n" })
	}
	stopped()
	if err := l.Finish(t.Context(), endless.ID); err != nil {
		t.Fatal(err)
	}
	for _, r := range parse(t, read(t, endless.Log)) {
		if r.text != yes && !strings.HasPrefix(r.text, "[nodevirt: ") {
			t.Fatalf("logged %+v", r)
		}
	}
}

func TestClosed(t *testing.T) {
	c := testConsole(t)
	l := following(t, c)
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{
		"Follow": l.Follow(c), "Reopen": l.Reopen(c.ID), "Finish": l.Finish(t.Context(), c.ID),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
