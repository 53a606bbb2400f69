package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/nodevirt/nodevirt/shim/config"
)

// nodeConfig is the config of a shim that shares nothing with others.
func nodeConfig(t *testing.T) config.Config {
	dir := t.TempDir()
	c := config.Default()
	c.Root, c.Run = filepath.Join(dir, "root"), filepath.Join(dir, "run")
	c.Listen = filepath.Join(c.Run, "nodevirt.sock")
	c.Libvirt.Run = filepath.Join(dir, "libvirt")
	c.ISCSI.Socket = filepath.Join(dir, "tgtd", "tgtd")
	c.Containerd.Address = filepath.Join(dir, "containerd", "containerd.sock")
	return c
}

// A second shim deletes what it finds and does not know. So nothing that it could share with the
// first may be given to it, whatever else differs.
func TestSecondShimIsRefused(t *testing.T) {
	first := nodeConfig(t)
	unlock, err := lockFolders(first)
	assert.NilError(t, err)
	link := filepath.Join(t.TempDir(), "link")
	assert.NilError(t, os.Symlink(first.Root, link))
	for _, one := range []struct {
		field string
		share func(*config.Config)
	}{
		{"root", func(c *config.Config) { c.Root = first.Root }},
		{"root", func(c *config.Config) { c.Root = link }},
		{"run", func(c *config.Config) { c.Run = first.Run }},
		{"libvirt.run", func(c *config.Config) { c.Libvirt.Run = first.Libvirt.Run }},
		{"iscsi.socket", func(c *config.Config) { c.ISCSI.Socket = first.ISCSI.Socket }},
		{"containerd.address", func(c *config.Config) { c.Containerd.Address = first.Containerd.Address }},
	} {
		second := nodeConfig(t)
		one.share(&second)
		_, err := lockFolders(second)
		assert.Check(t, is.ErrorContains(err, one.field), one.field)
		assert.Check(t, is.ErrorContains(err, "another shim"), one.field)
		if holderKnown(t) {
			assert.Check(t, is.ErrorContains(err, fmt.Sprintf("process %d", os.Getpid())), one.field)
		}
	}
	other := nodeConfig(t)
	unlockOther, err := lockFolders(other)
	assert.NilError(t, err, "a shim that shares nothing")
	unlockOther()
	unlock()
	unlock, err = lockFolders(first)
	assert.NilError(t, err, "after the first has ended")
	unlock()
}

// A refused shim leaves nothing locked: its next try may have another config.
func TestRefusedShimHoldsNothing(t *testing.T) {
	first, second := nodeConfig(t), nodeConfig(t)
	unlock, err := lockFolders(first)
	assert.NilError(t, err)
	defer unlock()
	second.ISCSI.Socket = first.ISCSI.Socket
	_, err = lockFolders(second)
	assert.ErrorContains(t, err, "iscsi.socket")
	second = config.Config{Root: second.Root, Run: second.Run, Libvirt: second.Libvirt, ISCSI: nodeConfig(t).ISCSI, Containerd: second.Containerd}
	unlockSecond, err := lockFolders(second)
	assert.NilError(t, err)
	unlockSecond()
}

func TestFoldersMayBeOne(t *testing.T) {
	c := nodeConfig(t)
	c.Containerd.Address, c.Libvirt.Run = filepath.Join(c.Run, "containerd.sock"), c.Run
	unlock, err := lockFolders(c)
	assert.NilError(t, err)
	unlock()
}

func TestHolder(t *testing.T) {
	const locks = "1: POSIX  ADVISORY  READ  11 fe:01:131 128 128\n" +
		"2: FLOCK  ADVISORY  WRITE 612 fe:01:131 0 EOF\n" +
		"2: -> FLOCK  ADVISORY  WRITE 613 fe:01:131 0 EOF\n" +
		"3: FLOCK  ADVISORY  WRITE 0 fe:01:132 0 EOF\n"
	assert.Equal(t, holderIn(locks, "fe:01:131"), 612)
	assert.Equal(t, holderIn(locks, "fe:01:132"), 0)
	assert.Equal(t, holderIn(locks, "fe:01:133"), 0)
}

// holderKnown reports whether the kernel lists this process' own locks with the numbers of stat.
func holderKnown(t *testing.T) bool {
	f, err := os.Open(t.TempDir())
	assert.NilError(t, err)
	defer f.Close()
	assert.NilError(t, lockFile(f))
	text, err := os.ReadFile("/proc/locks")
	assert.NilError(t, err)
	return strings.Contains(string(text), fmt.Sprintf(" %d ", os.Getpid())) && holder(f) == os.Getpid()
}
