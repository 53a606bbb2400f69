package imageunpack_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/pkg/archive"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack"
)

// outsideSize is the size of a disk beside the image's files, which none in it has, in bytes.
const outsideSize = 512 * 1000

// FuzzExamine looks for disks in images of any files. Their layers are a text with a line for each
// entry, and "--" above the next layer. Containerd unpacks them, the kernel is the judge of links.
func FuzzExamine(f *testing.F) {
	f.Add("file disk", "")
	f.Add("dir disk\nfile disk/a\n--\nfile disk/b\nfile disk/.wh.a", "")
	f.Fuzz(func(t *testing.T, layers, want string) {
		top := t.TempDir()
		dir := filepath.Join(top, "image")
		outside := filepath.Join(top, "disk")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(outside, make([]byte, outsideSize), 0o600)); err != nil {
			t.Fatal(err)
		}
		if !unpack(t, dir, layers) {
			return
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		d, err := imageunpack.Examine(t.Context(), root, want, 1<<40)
		if err != nil {
			checkRefusal(t, dir, err)
			return
		}
		checkFound(t, dir, d)
	})
}

// unpack says whether containerd takes the layers.
func unpack(t *testing.T, dir, layers string) bool {
	t.Helper()
	size := 0
	for text := range strings.SplitSeq(layers, "\n--\n") {
		var l layer
		for line := range strings.Lines(text) {
			if size += 512; size < 20*512 { // more entries find nothing more
				l = append(l, entry(strings.TrimSuffix(line, "\n"), size))
			}
		}
		b, err := l.archive()
		if err != nil {
			return false // not a name that an archive can hold
		}
		if _, err := archive.Apply(t.Context(), dir, bytes.NewReader(b)); err != nil {
			return false
		}
	}
	return true
}

// entry is an archive's for a line such as "file disk" or "link disk to other".
func entry(line string, size int) tar.Header {
	kind, rest, _ := strings.Cut(line, " ")
	name, to, _ := strings.Cut(rest, " to ")
	switch kind {
	case "dir":
		return dir(name)
	case "link":
		return link(name, to)
	case "hard":
		return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
	case "fifo":
		return fifo(name)
	case "device":
		return device(name)
	case "whiteout":
		return tar.Header{Name: name, Typeflag: tar.TypeChar}
	}
	return file(name, make([]byte, size))
}

// checkRefusal checks an error about the files in dir.
func checkRefusal(t *testing.T, dir string, err error) {
	t.Helper()
	if text := err.Error(); len(text) > 64<<10 || !utf8.ValidString(text) {
		t.Errorf("an error of %d bytes: %.200q", len(text), text)
	}
	if !errors.Is(err, imageunpack.ErrNoDisk) {
		if !errors.Is(err, imageunpack.ErrUnusable) {
			t.Errorf("an error that isn't the image's: %v", err)
		}
		return
	}
	disk := filepath.Join(dir, "disk")
	info, lerr := os.Lstat(disk)
	switch {
	case errors.Is(lerr, os.ErrNotExist):
	case lerr != nil:
		t.Fatal(lerr)
	case info.Mode().IsDir():
		if entries, lerr := os.ReadDir(disk); lerr != nil || len(entries) > 0 {
			t.Errorf("%v, but there is %v (%v)", err, entries, lerr)
		}
	case info.Mode()&os.ModeSymlink == 0:
		t.Errorf("%v, but there is a %s", err, info.Mode())
	}
}

// checkFound checks that d is in dir.
func checkFound(t *testing.T, dir string, d imageunpack.Disk) {
	t.Helper()
	if d.Path != "/disk" && !strings.HasPrefix(d.Path, "/disk/") || filepath.Clean(d.Path) != d.Path {
		t.Errorf("path %q", d.Path)
	}
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(top)
	fd, err := unix.Openat2(top, strings.TrimPrefix(d.Path, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		t.Fatalf("the kernel doesn't find %q in the image: %v", d.Path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != d.Size || d.Size == outsideSize {
		t.Errorf("%+v, but the file has mode %o and %d bytes", d, st.Mode, st.Size)
	}
}
