package loopfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/loopdev"
	"github.com/nodevirt/nodevirt/test/needs"
)

// FaultyDevice is [Device], but that reads and writes of the sector at an offset in bytes fail with EIO. QEMU's storage
// daemon shows a file with the fault, which the kernel sees as one of a FUSE file system.
func FaultyDevice(t testing.TB, size, offset int64) (path string) {
	t.Helper()
	needs.Parts(t, "root, QEMU")
	dir := t.TempDir()
	behind, shown := filepath.Join(dir, "behind.img"), filepath.Join(dir, "faulty.img")
	for _, file := range []string{behind, shown} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(behind, size); err != nil {
		t.Fatal(err)
	}
	const bytesPerSector = 512
	daemon := exec.Command("qemu-storage-daemon",
		"--blockdev", "driver=file,node-name=behind,filename="+behind,
		"--blockdev", fmt.Sprintf("driver=blkdebug,node-name=faulty,image=behind,"+
			"inject-error.0.event=none,inject-error.0.errno=%d,inject-error.0.sector=%d", unix.EIO, offset/bytesPerSector),
		"--export", "type=fuse,id=export,node-name=faulty,writable=on,mountpoint="+shown)
	daemon.Stdout, daemon.Stderr = t.Output(), t.Output()
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Signal(unix.SIGTERM) // it unmounts the file
		_ = daemon.Wait()
	})
	var f *os.File
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		info, err := os.Stat(shown)
		if err == nil && info.Size() == size {
			if f, err = os.OpenFile(shown, os.O_RDWR, 0); err == nil {
				break
			}
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("no disk of qemu-storage-daemon's: %v", err)
		}
	}
	defer f.Close()
	loop, err := loopdev.Attach(f, unix.LO_FLAGS_AUTOCLEAR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loop.Close() }) // nothing was written by it
	return loop.Name()
}
