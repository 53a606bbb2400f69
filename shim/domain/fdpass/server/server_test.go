package server_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/domain/fdpass"
	"github.com/nodevirt/nodevirt/shim/domain/fdpass/server"
)

// TestServe: who connects gets the text and the same files, in their order.
func TestServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	var files []*os.File
	for range 3 {
		f, err := os.CreateTemp(t.TempDir(), "")
		assert.NilError(t, err)
		defer f.Close()
		files = append(files, f)
	}
	s, err := server.Serve(path, uint32(os.Getuid()), uint32(os.Getgid()), "three\n", files...)
	assert.NilError(t, err)
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
	for range 2 { // a start that libvirt repeats
		text, fds, err := fdpass.Receive(path)
		assert.NilError(t, err)
		assert.Equal(t, text, "three\n")
		assert.Equal(t, len(fds), len(files))
		for i, fd := range fds {
			var own, got unix.Stat_t
			assert.NilError(t, unix.Fstat(int(files[i].Fd()), &own))
			assert.NilError(t, unix.Fstat(fd, &got))
			assert.Equal(t, got.Ino, own.Ino)
			assert.NilError(t, unix.Close(fd))
		}
	}
	assert.NilError(t, s.Close())
	_, err = os.Stat(path)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = fdpass.Receive(path)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = server.Serve(path, 0, 0, "none")
	assert.ErrorContains(t, err, "0 files are no message")
}

func TestVariable(t *testing.T) {
	env := []string{"A=1", "AB=2", "A=3"}
	assert.Equal(t, fdpass.Variable(env, "A"), "3")
	assert.Equal(t, fdpass.Variable(env, "B"), "")
}
