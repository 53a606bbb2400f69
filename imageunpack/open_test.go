package imageunpack_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack"
)

func (n *node) wantContent(d imageunpack.Disk, name string, want []byte) {
	n.t.Helper()
	f, err := n.Open(n.ctx, d, name)
	n.check(err)
	defer f.Close()
	got, err := io.ReadAll(f)
	n.check(err)
	if !bytes.Equal(got, want) {
		n.t.Errorf("%s has other content", name)
	}
}

func TestOpen(t *testing.T) {
	for _, layers := range [][]layer{
		{{file("disk", pattern(mib)), file("boot/vmlinuz", []byte("kernel"))}},
		{{file("disk", pattern(mib))}, {file("boot/vmlinuz", []byte("kernel"))}},
	} {
		t.Run(fmt.Sprintf("%d layers", len(layers)), func(t *testing.T) {
			n := newNode(t)
			ref, _ := n.load(layers...)
			d := n.acquire("owner", ref, "")
			n.wantContent(d, "/disk", pattern(mib))
			n.wantContent(d, "/boot/vmlinuz", []byte("kernel"))

			f, err := n.Open(n.ctx, d, d.Path)
			n.check(err)
			defer f.Close()
			if diff := cmp.Diff([]string{"lease nodevirt-owner", "View nodevirt-owner"}, n.held()); diff != "" {
				t.Error(diff)
			}
			// The file has mode 0666, but a process that gets the descriptor can't write
			// to it.
			again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
			if !errors.Is(err, syscall.EROFS) {
				t.Errorf("opened %v for writing: %v", again, err)
			}
			n.check(n.Release(n.ctx, "owner"))
			b := make([]byte, mib)
			if _, err := f.ReadAt(b, 0); err != nil || !bytes.Equal(b, pattern(mib)) {
				t.Errorf("the descriptor is of no use after Release: %v", err)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	n := newNode(t)
	ref, _ := n.load(layer{
		file("disk", pattern(mib)), fifo("pipe"), device("device"), dir("boot"),
		link("absolute", "/disk"), link("above", "../../etc/passwd"),
	})
	d := n.acquire("owner", ref, "")
	before := n.held()
	for name, want := range map[string]error{
		"/vmlinuz": imageunpack.ErrNotFound, "/disk/vmlinuz": imageunpack.ErrNotFound,
		"/pipe": imageunpack.ErrNotRegular, "/device": imageunpack.ErrNotRegular,
		"/boot": imageunpack.ErrNotRegular, "/": imageunpack.ErrNotRegular,
		"/absolute": imageunpack.ErrOutside, "/above": imageunpack.ErrOutside,
		"": imageunpack.ErrOutside, "disk": imageunpack.ErrOutside,
	} {
		if _, err := n.Open(n.ctx, d, name); !errors.Is(err, want) {
			t.Errorf("open %q: got error %v, want %v", name, err, want)
		}
	}
	if diff := cmp.Diff(before, n.held()); diff != "" {
		t.Error(diff)
	}
}

func TestSweep(t *testing.T) {
	n := newNode(t)
	target := filepath.Join(n.mountDir, "view-1")
	source := t.TempDir()
	n.check(os.WriteFile(filepath.Join(source, "kept"), nil, 0o600))
	n.check(os.Mkdir(target, 0o700))
	n.check(unix.Mount(source, target, "", unix.MS_BIND, ""))
	err := n.Sweep()
	if err != nil { // or the test's own clean-up would delete source
		err = errors.Join(err, unix.Unmount(target, unix.MNT_DETACH))
	}
	n.check(err)
	n.wantNothing("after Sweep")
	if _, err := os.Stat(filepath.Join(source, "kept")); err != nil {
		t.Error(err)
	}
	n.check(n.Sweep())
}

// TestImagesAreNeverWritten uses a disk in every way and looks at all of containerd's files.
func TestImagesAreNeverWritten(t *testing.T) {
	n := newNode(t)
	ref, _ := n.load(layer{file("disk/a", pattern(mib))}, layer{file("x", []byte("x"))})
	n.acquire("first", ref, "") // unpacks
	n.collectGarbage()
	before := n.digests()
	if len(before) < 4 {
		t.Fatalf("only %d files of images were found", len(before))
	}
	d := n.acquire("second", ref, "a")
	path := filepath.Join(t.TempDir(), "overlay")
	n.check(n.Overlay(d, path))
	n.writeOverlay(d, path)
	n.check(n.Release(n.ctx, "second"))
	n.collectGarbage()
	if diff := cmp.Diff(before, n.digests()); diff != "" {
		t.Error(diff)
	}
}

// digests describes all files of containerd's images, packed and unpacked.
func (n *node) digests() map[string]string {
	n.t.Helper()
	found := map[string]string{}
	for _, dir := range []string{
		"io.containerd.content.v1.content/blobs", "io.containerd.snapshotter.v1.overlayfs/snapshots",
	} {
		err := filepath.WalkDir(filepath.Join(n.root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			b, err := os.ReadFile(path)
			found[path] = fmt.Sprintf("%s %s %x", info.Mode(), info.ModTime(), sha256.Sum256(b))
			return err
		})
		n.check(err)
	}
	return found
}
