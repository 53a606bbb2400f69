package memory_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/bench/memory"
)

func TestPSS(t *testing.T) {
	if pss, err := memory.PSS(os.Getpid()); err != nil || pss <= 0 {
		t.Errorf("this process takes %f MiB: %v", pss, err)
	}
	if _, err := memory.Mebibytes(os.Getpid(), "status", "VmNone"); err == nil {
		t.Error("a field that is not there has a value")
	}
}

// TestAnonymous: of a file that is mapped privately, only what was written is the process's own.
func TestAnonymous(t *testing.T) {
	const size, written = 4 << 20, 1 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped-by-a-test"))
	assert.NilError(t, err)
	defer f.Close()
	assert.NilError(t, f.Truncate(size))
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	assert.NilError(t, err)
	defer func() { assert.NilError(t, unix.Munmap(data)) }()
	for i := range written {
		data[i] = 1
	}
	own, err := memory.Anonymous(os.Getpid(), "mapped-by-a-test")
	assert.NilError(t, err)
	if own < 1 || own > 3 {
		t.Errorf("%f MiB are the process's own; 1 MiB was written", own)
	}
	if _, err := memory.Anonymous(os.Getpid(), "no-such-file"); err == nil {
		t.Error("a file that is not mapped has a value")
	}
}
