package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const testMiB = 1 << 20

// fileSystem mounts 100 MiB of memory.
func fileSystem(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=100m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// bind mounts a folder again, as the kubelet does for a subPath.
func bind(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(from, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestGrow: only a disk that was made here grows, and only in the root of a file system.
func TestRoom(t *testing.T) {
	n := newNode(t)
	top := fileSystem(t)
	if err := os.WriteFile(filepath.Join(top, imageFile), make([]byte, testMiB), 0o600); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(top, "below")
	if err := errors.Join(os.Mkdir(below, 0o700), os.WriteFile(filepath.Join(below, imageFile), []byte("12345678"), 0o600)); err != nil {
		t.Fatal(err)
	}
	device := n.volume(t, "device", true, "12345678")
	for _, c := range []struct {
		d              vmspec.Disk
		capacity, want int64
	}{
		{vmspec.Disk{Source: vmspec.SourcePVC, Host: top}, 1000 * testMiB, 94 * testMiB}, // the other file has a page
		{vmspec.Disk{Source: vmspec.SourcePVC, Host: top}, 50 * testMiB, 47 * testMiB},
		{vmspec.Disk{Source: vmspec.SourcePVC, Host: top}, 0, testMiB},
		{vmspec.Disk{Source: vmspec.SourcePVC, Host: below}, 50 * testMiB, 8},
		{device, 1000 * testMiB, 8},
	} {
		f, got, err := n.Attachments.Room(n.container(t, "c", device), c.d, c.capacity)
		if err != nil || got != c.want {
			t.Errorf("%+v with %d: %d, %v; want %d", c.d, c.capacity, got, err, c.want)
		}
		f.Close()
	}
	for _, d := range []vmspec.Disk{{Name: "d", Source: vmspec.SourceSeed}, {Name: "d", Source: vmspec.SourcePVC, Host: t.TempDir()}} {
		if _, got, err := n.Attachments.Room(n.container(t, "c", device), d, 1); !errors.Is(err, ErrVolume) {
			t.Errorf("%+v: %d, %v", d, got, err)
		}
	}
}

func TestGrow(t *testing.T) {
	n := newNode(t)
	n.addImage(t, "big", []byte("a larger raw disk"))
	origin := vmspec.Disk{Name: "d", Source: vmspec.SourcePVC, Origin: vmspec.OriginOwn}
	plain := vmspec.Disk{Name: "d", Source: vmspec.SourcePVC}
	id := 0
	size := func(d vmspec.Disk, host string) int64 {
		t.Helper()
		id++
		d.Host = host
		r := n.container(t, fmt.Sprint("vm", id), d)
		if err := n.Maker.Create(t.Context(), r, func(string, expand.Progress) {}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(host, imageFile))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	existing := func(dir string) string {
		t.Helper()
		content := append([]byte("a disk"), make([]byte, testMiB-6)...)
		if err := os.WriteFile(filepath.Join(dir, imageFile), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}

	top := fileSystem(t)
	if got := size(origin, top); got != 95*testMiB {
		t.Errorf("in a file system: %d", got)
	}
	if err := unix.Mount("", top, "", unix.MS_REMOUNT, "size=200m"); err != nil {
		t.Fatal(err)
	}
	if got := size(plain, top); got != 190*testMiB {
		t.Errorf("when the file system is larger: %d", got)
	}
	if got := size(origin, bind(t, fileSystem(t))); got != 95*testMiB {
		t.Errorf("in a file system that is mounted again: %d", got)
	}
	shared := fileSystem(t)
	for _, name := range []string{"one", "two"} {
		makeFolder(t, shared, name)
		if got := size(origin, bind(t, filepath.Join(shared, name))); got != testMiB {
			t.Errorf("in a folder that is mounted: %d", got)
		}
	}
	blank := vmspec.Disk{Name: "d", Source: vmspec.SourcePVC, Size: 20 * testMiB}
	if got := size(blank, fileSystem(t)); got != 95*testMiB {
		t.Errorf("a blank disk in a file system: %d", got)
	}
	folder := filepath.Join(shared, "blank")
	makeFolder(t, folder)
	if got := size(blank, folder); got != 20*testMiB {
		t.Errorf("a blank disk in a folder: %d", got)
	}
	blank.Size = 1 << 40
	folder = filepath.Join(shared, "large")
	makeFolder(t, folder)
	if got := size(blank, folder); got < 80*testMiB || got > 95*testMiB {
		t.Errorf("a blank disk that is larger than the file system: %d", got)
	}
	if got := size(blank, existing(fileSystem(t))); got != testMiB {
		t.Errorf("a disk that was there, in place of a blank one: %d", got)
	}
	sized := origin
	sized.Size = 30 * testMiB
	folder = filepath.Join(shared, "sized")
	makeFolder(t, folder)
	if got := size(sized, folder); got != 30*testMiB {
		t.Errorf("a sized disk with an origin: %d", got)
	}
	if got := size(plain, existing(fileSystem(t))); got != testMiB {
		t.Errorf("a disk that was there: %d", got)
	}
	if got := size(origin, existing(fileSystem(t))); got != testMiB {
		t.Errorf("a disk that was there, with an origin: %d", got)
	}
}

// TestShowsRoot reads lines of mountinfo.
func TestShowsRoot(t *testing.T) {
	const lines = "7 1 0:1 / / rw - ext4 /dev/a rw\n" +
		"70 7 0:2 / /v/a\\040b rw shared:1 - xfs /dev/b rw\n" +
		"71 7 0:2 /sub /v/c rw - xfs /dev/b rw\n"
	for _, c := range []struct {
		id     uint64
		folder string
		want   bool
	}{
		{70, "/v/a b", true},
		{71, "/v/c", false},
		{7, "/v/d", false}, // a folder of the node's
		{7, "/", true},
		{9, "/v/c", false}, // unmounted meanwhile
	} {
		if got, err := showsRoot(strings.NewReader(lines), c.id, c.folder); err != nil || got != c.want {
			t.Errorf("mount %d at %s: %t, %v", c.id, c.folder, got, err)
		}
	}
}

// TestSubPath: the path of a mount with a subPath does not name the volume's kind.
func TestSubPath(t *testing.T) {
	n := newNode(t)
	uid := filepath.Join(n.dir, "pods", "1-2")
	for i, c := range []struct {
		kinds   []string
		refused bool
	}{
		{[]string{"kubernetes.io~csi"}, false},
		{nil, false}, // a hostPath has no folder
		{[]string{"kubernetes.io~empty-dir"}, true},
		{[]string{"kubernetes.io~configmap"}, true},
		{[]string{"kubernetes.io~secret"}, true},
		{[]string{"kubernetes.io~projected"}, true},
		{[]string{"kubernetes.io~downward-api"}, true},
		{[]string{"kubernetes.io~csi", "kubernetes.io~empty-dir"}, true}, // both have the name
	} {
		name := fmt.Sprint("pvc-", i)
		for _, kind := range c.kinds {
			makeFolder(t, uid, "volumes", kind, name)
		}
		host := filepath.Join(uid, "volume-subpaths", name, "vm", "0")
		makeFolder(t, host)
		d := vmspec.Disk{Name: "d", Source: vmspec.SourcePVC, Host: host, Origin: vmspec.OriginOwn}
		err := n.Maker.Create(t.Context(), n.container(t, fmt.Sprint("vm", i), d), func(string, expand.Progress) {})
		if refused := err != nil && strings.Contains(err.Error(), "are not supported in a VM"); refused != c.refused || !refused && err != nil {
			t.Errorf("%v: %v", c.kinds, err)
		}
		if _, err := os.Stat(filepath.Join(host, imageFile)); c.refused == (err == nil) {
			t.Errorf("%v: the file: %v", c.kinds, err)
		}
	}
}
