package domain

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/needs"
)

// TestCheckRoom: a libvirtd that cannot write the state of a guest kills it.
func TestCheckRoom(t *testing.T) {
	needs.Parts(t, "root")
	run := t.TempDir()
	dir := filepath.Join(run, "qemu")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,nr_inodes=8"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	check := func(what string, full bool) {
		t.Helper()
		if err := CheckRoom(run); errors.Is(err, ErrNoRoom) != full || !full && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := FindRoom(run); errors.Is(err, ErrNoRoom) != full || !full && err != nil {
			t.Errorf("%s, by the sizes: %v", what, err)
		}
		left, err := filepath.Glob(filepath.Join(dir, roomFile+"*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: left are %v, %v", what, left, err)
		}
	}
	state := func(name string, pid int) {
		text := fmt.Sprintf("<domstatus state='running' reason='booted' pid='%d'><domain type='kvm'><name>%s</name>%s</domain></domstatus>",
			pid, name, strings.Repeat(" ", 20<<10))
		if err := os.WriteFile(filepath.Join(dir, name+".xml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("no guest", false)
	guest := exec.Command("sleep", "60")
	guest.Args[0] = "guest=web,debug-threads=on" // as QEMU has it
	if err := guest.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = guest.Process.Kill()
		_ = guest.Wait()
	})
	state("web", guest.Process.Pid)
	check("a guest, and room", false)

	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 200<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	check("no blocks", true)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if f, err := os.Create(filepath.Join(dir, fmt.Sprint("inode", i))); err == nil {
			f.Close()
		}
	}
	check("no inodes", true)
	state("web", os.Getpid()) // another process has the number of a QEMU that ended
	check("no guest runs", false)
}
