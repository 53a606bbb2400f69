package tapfd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// file returns a descriptor and the number by which its file is known.
func file(t *testing.T) (fd int, inode uint64) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	assert.NilError(t, err)
	fd, err = unix.Dup(int(f.Fd()))
	assert.NilError(t, err)
	assert.NilError(t, f.Close())
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd, inodeOf(t, fd)
}

func inodeOf(t *testing.T, fd int) uint64 {
	t.Helper()
	var stat unix.Stat_t
	assert.NilError(t, unix.Fstat(fd, &stat))
	return stat.Ino
}

// TestReplace: QEMU's descriptors are the taps, and the others stay.
func TestReplace(t *testing.T) {
	one, _ := file(t)
	two, _ := file(t)
	three, _ := file(t)
	other, otherFile := file(t)
	tap, tapFile := file(t)
	first, firstFile := file(t)
	second, secondFile := file(t)
	args := []string{
		"qemu", "-netdev", fmt.Sprintf(`{"type":"tap","fd":"%d","vhost":true,"vhostfd":"9","id":"hostua-nic_a"}`, one),
		"-netdev", fmt.Sprintf(`{"type":"tap","fds":"%d:%d","id":"hostua-nic_b"}`, two, three),
		"-netdev", fmt.Sprintf(`{"type":"tap","fd":"%d","id":"hostua-nic_c"}`, other), "-netdev", "user,id=hostua-nic_d",
	}
	text := Text([]Card{{"ua-nic_b", 2}, {"ua-nic_a", 1}})
	assert.NilError(t, replace(args, text, []int{first, second, tap}))
	for fd, want := range map[int]uint64{one: tapFile, two: firstFile, three: secondFile, other: otherFile} {
		assert.Equal(t, inodeOf(t, fd), want)
	}
	flags, err := unix.FcntlInt(uintptr(one), unix.F_GETFD, 0)
	assert.NilError(t, err)
	assert.Equal(t, flags&unix.FD_CLOEXEC, 0)
}

func TestReplaceRefuses(t *testing.T) {
	args := []string{"qemu", "-netdev", `{"type":"tap","fd":"70","id":"hosta"}`, "-netdev", `{"type":"tap","fd":"2","id":"hostb"}`, "-netdev", "tap,fd=71,id=hostc"}
	for text, want := range map[string]string{
		"a 2\n":       "1 queues in QEMU's arguments, and 2 taps",
		"a 3\n":       "no card with one of 2 taps",
		"a\n":         "no card",
		"b 1\n":       "no tap in QEMU's arguments",
		"c 1\n":       "no tap in QEMU's arguments",
		"missing 1\n": "no tap in QEMU's arguments",
		"":            "2 taps are of no network card",
	} {
		assert.ErrorContains(t, replace(args, text, []int{300, 301}), want, text)
	}
}

// TestTake: only a QEMU whose environment says so gets taps, and none starts without them.
func TestTake(t *testing.T) {
	assert.NilError(t, Take([]string{"qemu"}, []string{"HOME=/"}))
	err := Take([]string{"qemu"}, []string{Variable + "=" + filepath.Join(t.TempDir(), "none")})
	assert.ErrorContains(t, err, "get the VM's taps")
}
