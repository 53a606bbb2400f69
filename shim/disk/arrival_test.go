package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// lockedByQEMU locks a byte of a file, as the source's QEMU does, until the test ends.
func lockedByQEMU(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: 201, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
}

// TestArrival: a VM that waits for its guest gets the volumes that the guest uses elsewhere,
// with their locks held, and writes nothing to them.
func TestArrival(t *testing.T) {
	n := newNode(t)
	none := func(string, expand.Progress) {}
	waits := func(r record.Container) record.Container { r.Incoming = "m"; return r }
	const content = "\x00zeros are no disk, but the guest's"
	file := n.volume(t, "file", false, content)
	file.Size = 1 << 20
	filled := file
	filled.Origin = vmspec.OriginOwn
	block := n.volume(t, "block", true, "\x00\x00\x00")
	block.Origin = vmspec.OriginOwn
	host := file
	host.Source, host.File, host.Shared = vmspec.SourceHostDisk, imageFile, true
	ephemeral := file
	ephemeral.Source = vmspec.SourceEphemeral
	lockedByQEMU(t, filepath.Join(file.Host, imageFile))

	for name, d := range map[string]vmspec.Disk{"file": file, "filled": filled, "host": host, "block": block, "ephemeral": ephemeral,
		"iscsi": iscsiDisk(t), "rbd": rbdDisk(t)} {
		r := waits(n.container(t, name, d))
		if err := n.Maker.Create(t.Context(), r, none); err != nil {
			t.Errorf("%s: create: %v", name, err)
			continue
		}
		// At the start, and when the source's order has brought its domain's UUID.
		for _, uuid := range []string{r.Domain.UUID, "1f0c1c1e-0000-4000-8000-000000000001"} {
			r.Domain.UUID = uuid
			files, err := n.Attachments.Attach(t.Context(), r)
			closeAll(files)
			if err != nil {
				t.Errorf("%s: attach: %v", name, err)
			}
		}
	}
	if len(n.secrets) != 2 {
		t.Errorf("libvirtd has %d secrets before the domains that need two", len(n.secrets))
	}
	for path, want := range map[string]string{filepath.Join(file.Host, imageFile): content, block.Host: "\x00\x00\x00"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s has %d bytes, %v; the guest's are changed", path, len(got), err)
		}
	}
	if err := n.Maker.Create(t.Context(), n.container(t, "boots", file), none); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("a VM that boots gets the guest's volume: %v", err)
	}
	for name, d := range map[string]vmspec.Disk{"block": block, "iscsi": iscsiDisk(t), "rbd": rbdDisk(t)} {
		if err := n.Attachments.Detach(t.Context(), waits(n.container(t, name, d))); err != nil {
			t.Error(err)
		}
	}
	if len(n.secrets) > 0 {
		t.Errorf("secrets of VMs that are gone: %d", len(n.secrets))
	}
}

// TestArrivalElsewhere: a volume that is not the guest's is refused.
func TestArrivalElsewhere(t *testing.T) {
	n := newNode(t)
	for _, d := range []vmspec.Disk{n.volume(t, "missing", false, ""), emptyFile(t, n.volume(t, "empty", false, "x"))} {
		d.Size = 1 << 20
		r := n.container(t, "c", d)
		r.Incoming = "m"
		if err := n.Maker.Create(t.Context(), r, nil); !errors.Is(err, ErrVolume) {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
	written := n.volume(t, "written", false, "content")
	f, err := os.OpenFile(filepath.Join(written.Host, imageFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := persist.Lock(f); err != nil {
		t.Fatal(err)
	}
	r := n.container(t, "c", written)
	r.Incoming = "m"
	if err := n.Maker.Create(t.Context(), r, nil); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("a volume that an image is written to: %v", err)
	}
}

func emptyFile(t *testing.T, d vmspec.Disk) vmspec.Disk {
	t.Helper()
	if err := os.Truncate(filepath.Join(d.Host, imageFile), 0); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSame: a file is the guest's if the guest's use of it is seen here, or if its file system is that of several nodes.
func TestSame(t *testing.T) {
	n := newNode(t)
	file, block := n.volume(t, "file", false, "content"), n.volume(t, "block", true, "content")
	r := n.container(t, "c1")
	if err := n.Attachments.Same(r, file); !errors.Is(err, ErrVolume) {
		t.Errorf("a file that nothing uses: %v", err)
	}
	lockedByQEMU(t, filepath.Join(file.Host, imageFile))
	for _, d := range []vmspec.Disk{file, block} {
		for _, d.ReadOnly = range []bool{false, true} {
			if err := n.Attachments.Same(r, d); err != nil {
				t.Errorf("%s, read-only %t: %v", d.Name, d.ReadOnly, err)
			}
		}
	}
	missing := n.volume(t, "missing", false, "")
	if err := os.RemoveAll(filepath.Join(missing.Host, imageFile)); err != nil {
		t.Fatal(err)
	}
	if err := n.Attachments.Same(r, missing); !errors.Is(err, ErrVolume) {
		t.Errorf("no file: %v", err)
	}
	for kind, want := range map[int64]bool{unix.NFS_SUPER_MAGIC: true, unix.CEPH_SUPER_MAGIC: true, unix.EXT4_SUPER_MAGIC: false, unix.FUSE_SUPER_MAGIC: false} {
		if ofNetwork(kind) != want {
			t.Errorf("file system %x: %t", kind, !want)
		}
	}
}
