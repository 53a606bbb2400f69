package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

const escape = "\x1d" // ctrl-]

// testConsole types at a guest, leaves it, comes back, and sees it end.
func (u user) testConsole(t *testing.T) {
	u = u.in(t)
	tiny, err := guest.Tiny(t.Context(), u.n.GuestOptions())
	assert.NilError(t, err)
	u.do("image", "build", tiny, "-t", "tiny:1")
	s := u.open(u.run("tiny:1", "--name", "typed")...)
	s.shows(`Connected to the console of VM typed; ctrl-\] disconnects\.`)
	s.shows("nodevirt guest: up")
	if s.mode().Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
		t.Error("the terminal cooks what is typed")
	}
	s.types("\recho $((6 * 7))\r")
	s.shows(`echo \$\(\(6 \* 7\)\)\r\n42\r\n`)
	s.types("stty -isig; echo rea''dy; cat -v\r")
	s.shows(`\nready\r\n`)
	s.types("\x03 is the guest's\r\x04")
	s.shows(`(\^C is the guest's\r\n){2}`) // once as an echo
	s.types(escape)
	s.shows("VM typed continues to run. Next: nodevirt console typed, nodevirt rm typed")
	s.ends(0)

	u.knownWithoutLibvirtd("typed")
	s = u.open("console", "typed")
	s.shows("disconnects")
	s.resize(50, 132) // a serial line carries no size; it must not break the line either
	s.types("\recho ba''ck\r")
	s.shows(`\nback\r\n`)
	s.signal(syscall.SIGTERM)
	s.ends(0)

	// A later client sees what was printed before, and all see what one types.
	s, other := u.open("console", "typed"), u.open("console", "typed")
	for _, session := range []*screen{s, other} {
		session.shows(`nodevirt guest: up`)
		session.shows(`\nback\r\n`)
	}
	other.types("echo bo''th\r")
	for _, session := range []*screen{s, other} {
		session.shows(`\nboth\r\n`)
	}
	other.types(escape)
	other.ends(0)
	s.types("\r/etc/stop poweroff\r")
	s.shows("VM typed has powered off")
	s.ends(0)
	if r := u.try("console", "typed"); r.code != 1 || !strings.Contains(r.err, "does not run (Exited (0)); its log is ") {
		t.Errorf("console of a VM that has ended: %+v", r)
	}
	// The shim comes back to libvirtd after a while.
	wait.Until(u, "the removal", func() bool { return u.try("rm", "typed").code == 0 })
}

// testProgress watches a pull on a terminal. The registry sends the second half of the disk once the terminal shows
// how far the fetch is, and folders above the disk make the unpacking last.
func (u user) testProgress(t *testing.T) {
	u = u.in(t)
	path := disk(t, "pulled", guest.Halt)
	assert.NilError(t, os.Truncate(path, 192<<20))
	var folders []images.File
	for i := range 10_000 {
		folders = append(folders, images.File{Name: fmt.Sprintf("folder%d/", i)})
	}
	img, err := images.RegistryDisk(path, images.DiskOptions{Above: [][]images.File{folders}})
	assert.NilError(t, err)
	r := u.serveSlowly()
	_, err = images.Push(t.Context(), r.address+"/large:1", img, images.PushOptions{Transport: &http.Transport{DialContext: u.n.Dial}})
	assert.NilError(t, err)
	r.hold(96 << 20)
	before := u.census(t)
	s := u.open(u.run(r.address+"/large:1", "--rm", "--name", "pulled")...)
	s.shows("Pulling " + r.address + "/large:1")
	s.shows(`fetch +[0-9]+% .*\([0-9]+/[0-9]+ MiB`)
	r.release()
	s.shows("unpack")
	s.shows("Connected to the console of VM pulled")
	s.types(escape)
	s.shows(`The VM is removed\.`)
	s.ends(0)
	u.wantNothingSince(t, before, "snapshot") // but the image that was pulled
	if logs, err := filepath.Glob(filepath.Join(u.n.Dir(), "podlogs", "*")); err != nil || len(logs) > 0 {
		t.Errorf("logs left behind: %v, %v", logs, err)
	}
}
