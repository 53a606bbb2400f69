// Package qemunbd serves disks by QEMU's NBD server, for tests of what reads backups.
package qemunbd

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/needs"
)

// Bitmap is the name of the bitmap of what has changed.
const Bitmap = "nodevirt-changes"

// Disk is a qcow2 file that is 64 MiB large. Its first 4 MiB had the byte 1 before [Bitmap] began;
// then the byte 2 was written to 1 MiB at 2 MiB, and zeros to 1 MiB at 8 MiB.
type Disk struct {
	Path string
	t    testing.TB
}

// Size is the size of a disk in bytes.
const Size = 64 << 20

// New makes a disk.
func New(t testing.TB) Disk {
	t.Helper()
	needs.Parts(t, "qemu-nbd")
	d := Disk{filepath.Join(t.TempDir(), "disk.qcow2"), t}
	d.tool("qemu-img", "create", "-q", "-f", "qcow2", d.Path, "64M")
	d.tool("qemu-io", "-f", "qcow2", "-c", "write -P 1 0 4M", d.Path)
	d.tool("qemu-img", "bitmap", "--add", "-f", "qcow2", d.Path, Bitmap)
	d.tool("qemu-io", "-f", "qcow2", "-c", "write -P 2 2M 1M", "-c", "write -z 8M 1M", d.Path)
	d.tool("qemu-img", "bitmap", "--disable", "-f", "qcow2", d.Path, Bitmap)
	return d
}

func (d Disk) tool(name string, args ...string) {
	d.t.Helper()
	if out, err := exec.CommandContext(d.t.Context(), name, args...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// Serve serves the disk by a name until the test or the context ends, and returns the server's socket.
func (d Disk) Serve(ctx context.Context, name string) (socket string) {
	d.t.Helper()
	socket = filepath.Join(d.t.TempDir(), "nbd.sock")
	cmd := exec.CommandContext(ctx, "qemu-nbd", "--read-only", "--persistent", "--shared=16", "-f", "qcow2", "--bitmap="+Bitmap, "-x", name, "-k", socket, d.Path)
	cmd.Stdout, cmd.Stderr = d.t.Output(), d.t.Output()
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var dialer net.Dialer
	for range 500 {
		if conn, err := dialer.DialContext(ctx, "unix", socket); err == nil {
			_ = conn.Close()
			return socket
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.t.Fatal("qemu-nbd does not listen")
	return ""
}
