package domain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestPID(t *testing.T) {
	qemu := exec.CommandContext(t.Context(), "sh", "-c", "read x", "-name", "guest=vm,debug-threads=on")
	stdin, err := qemu.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = qemu.Wait() })

	p := Processes{runDir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(p.runDir, "qemu"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(p.runDir, "qemu", name+".pid"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("vm", fmt.Sprintln(qemu.Process.Pid))
	if pid, err := p.pid("vm"); err != nil || pid != qemu.Process.Pid {
		t.Errorf("got %d, %v; want %d", pid, err, qemu.Process.Pid)
	}
	// What a guest can put there.
	write("v", fmt.Sprintln(qemu.Process.Pid)) // another guest's
	for name, text := range map[string]string{"init": "1", "group": "-1", "none": "", "text": "x"} {
		write(name, text)
	}
	for _, name := range []string{"v", "init", "group", "none", "text"} {
		if pid, err := p.pid(name); err == nil {
			t.Errorf("%s: got %d, want an error", name, pid)
		}
	}
	write("long", strings.Repeat("1", 1<<20))
	if _, err := p.pid("long"); err == nil || len(err.Error()) > 1000 {
		t.Errorf("a file that a guest made long: %.1000v", err)
	}
	if _, err := p.pid("gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}
