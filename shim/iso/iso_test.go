package iso_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/iso"
	"github.com/nodevirt/nodevirt/test/isofs"
	"github.com/nodevirt/nodevirt/test/needs"
)

// add returns what fills an image with files.
func add(files map[string]string) func(*iso.Files) error {
	return func(f *iso.Files) error {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := f.Add(name, 0o640, strings.NewReader(files[name])); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestWrite(t *testing.T) {
	full := strings.Repeat("0123456789abcde\n", isofs.Block/16)
	many := map[string]string{}
	for n := range iso.MaxFiles {
		many[fmt.Sprintf("a-key-of-many-%d.conf", n)] = strings.Repeat("x", n)
	}
	long := strings.Repeat("n", iso.MaxName)
	for name, files := range map[string]map[string]string{
		"none":                {},
		"an empty one":        {"a": ""},
		"text":                {"user-data": "#cloud-config\nhostname: grün\n", "meta-data": "instance-id: a\n"},
		"whole blocks":        {"a": full, "b": full + full, "c": full},
		"bytes around blocks": {"a": full[1:], "b": full + "x"},
		"large":               {"a": "{}", "b": strings.Repeat(full, 128)},
		"zeros":               {"a": strings.Repeat("\x00", 3*isofs.Block), "b": "\x00", "c": full, "d": "x" + strings.Repeat("\x00", 2*isofs.Block-1)},
		"binary":              {"a.bin": "\x00\xff\xfe" + strings.Repeat("\x80\x00", 4096)},
		"as large as can be":  {"a": strings.Repeat("y", iso.MaxBytes)},
		"as many as can be":   many,
		"long names":          {long: "1", long[1:] + "x": "2", "d/" + long[1:] + "y": "3", long[:109] + "/" + long: full},
		"names of one kind":   {"key": "1", "KEY": "2", "Key.txt": "3", "key.text": "4", "key.a.b": "5", ".key": "6", "key_1": "7", "k y!": "8", "grün": "9"},
		"folders": {"openstack/latest/meta_data.json": "{}", "openstack/latest/user_data": full, "openstack/latest": "",
			"a/b/c/d/e/f/g/h": "deep", "a/b/i": "", "z": full},
	} {
		t.Run(name, func(t *testing.T) {
			delete(files, "openstack/latest")
			folder := t.TempDir()
			path := filepath.Join(folder, "a.iso")
			if err := iso.Write(t.Context(), path, "label", add(files)); err != nil {
				t.Fatal(err)
			}
			image := isofs.Read(t, path)
			if diff := cmp.Diff(files, image.Files); diff != "" {
				t.Errorf("Rock Ridge (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(files, image.Joliet); diff != "" {
				t.Errorf("Joliet (-want +got):\n%s", diff)
			}
			for name, mode := range image.Modes {
				want := fs.FileMode(0o755)
				if _, isFile := files[name]; isFile {
					want = 0o640
				}
				if mode != want {
					t.Errorf("%s has the mode %s; want %s", name, mode, want)
				}
			}
			if got := names(t, folder); !slices.Equal(got, []string{"a.iso"}) {
				t.Errorf("beside the image: %q", got)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != 0o600 || info.Size()%isofs.Block != 0 {
				t.Errorf("mode %v, %d bytes", info.Mode(), info.Size())
			}
		})
	}
}

// TestBounds: what the format cannot hold is refused before the image is written.
func TestBounds(t *testing.T) {
	for want, name := range map[string]string{
		`"a/b/c/d/e/f/g/h/i" is in more than 7 folders`: "a/b/c/d/e/f/g/h/i",
		"has more than 110 bytes":                       "a/" + strings.Repeat("n", iso.MaxName+1) + "/b",
		`the path "../a"`:                               "../a",
		`the path "/a"`:                                 "/a",
		`the path "."`:                                  ".",
		`the path "a\xff"`:                              "a\xff",
		`the name "a\n" has other characters`:           "a\n",
		`the name "😀" has other characters`:             "😀",
	} {
		refused(t, want, add(map[string]string{name: ""}))
	}
	refused(t, "more than 4194304 bytes", add(map[string]string{"a": strings.Repeat("x", iso.MaxBytes), "b": "x"}))
	refused(t, "more than 1000 files", func(f *iso.Files) error {
		for n := range iso.MaxFiles + 1 {
			if err := f.Add(fmt.Sprint(n), 0o600, strings.NewReader("")); err != nil {
				return err
			}
		}
		return nil
	})
}

func refused(t *testing.T, want string, fill func(*iso.Files) error) {
	t.Helper()
	folder := t.TempDir()
	err := iso.Write(t.Context(), filepath.Join(folder, "a.iso"), "a", fill)
	if !errors.Is(err, iso.ErrBounds) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
	if left := names(t, folder); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestLabel(t *testing.T) {
	needs.Parts(t, "blkid")
	path := filepath.Join(t.TempDir(), "a.iso")
	for label, joliet := range map[string]string{
		"cidata": "cidata", "config-2": "config-2", "unattendCD": "unattendCD",
		"My Files of 32 characters (long)": "My Files of 32 c",
	} {
		if err := iso.Write(t.Context(), path, label, add(map[string]string{"a": "b"})); err != nil {
			t.Fatal(err)
		}
		if i := isofs.Read(t, path); i.Label != label || i.JolietLabel != joliet {
			t.Errorf("label %q, %q; want %q, %q", i.Label, i.JolietLabel, label, joliet)
		}
		for tag, want := range map[string]string{"LABEL": label, "TYPE": "iso9660"} {
			got := run(t, "blkid", "--probe", "--output", "value", "--match-tag", tag, path)
			if got != want {
				t.Errorf("%s: %q, want %q", tag, got, want)
			}
		}
	}
}

func TestReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.iso")
	for _, content := range []string{"a", "b"} {
		if err := iso.Write(t.Context(), path, "label", add(map[string]string{"key": content})); err != nil {
			t.Fatal(err)
		}
		if got := isofs.Read(t, path).Files["key"]; got != content {
			t.Errorf("the file holds %q, want %q", got, content)
		}
	}
}

// TestFullDisk fills the disk at every step of the way: files, image, the
// library's unchecked writes.
func TestFullDisk(t *testing.T) {
	folder := t.TempDir()
	inMountNamespace(t, func() {
		big := add(map[string]string{"a": strings.Repeat("x", 64<<10), "b": "b"})
		failed := 0
		for _, size := range []string{"32k", "72k", "80k", "100k", "112k", "128k", "144k", "160k"} {
			run(t, "mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", folder)
			err := iso.Write(t.Context(), filepath.Join(folder, "a.iso"), "label", big)
			left := names(t, folder)
			if err != nil {
				failed++
				if !strings.Contains(err.Error(), "no space left on device") || len(left) > 0 {
					t.Errorf("%s: left %q after: %v", size, left, err)
				}
			}
			run(t, "umount", folder)
		}
		if failed < 5 {
			t.Errorf("%d of the disks were too small, want 5 at least", failed)
		}
	})
}

func TestErrors(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	folder := t.TempDir()
	path := filepath.Join(folder, "a.iso")
	if err := iso.Write(canceled, path, "", add(nil)); err == nil ||
		err.Error() != "write image "+path+": context canceled" {
		t.Errorf("canceled: %v", err)
	}
	missing := filepath.Join(folder, "missing", "a.iso")
	if err := iso.Write(t.Context(), missing, "", add(nil)); err == nil ||
		!strings.HasPrefix(err.Error(), "write image "+missing+": create image: ") {
		t.Errorf("no folder: %v", err)
	}
	if got := names(t, folder); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

// inMountNamespace runs f on a thread with a separate mount namespace, which go
// when it ends: the thread is never unlocked, so it ends with its goroutine.
func inMountNamespace(t *testing.T, f func()) {
	t.Helper()
	needs.Parts(t, "root")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			t.Errorf("unshare: %v", err)
			return
		}
		if err := unix.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Errorf("make / private: %v", err)
			return
		}
		f()
	}()
	<-done
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Error(err)
	}
	set := map[string]bool{}
	for _, e := range entries {
		set[e.Name()] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// run runs a tool and returns its trimmed output. It may be called off the
// test's goroutine.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", cmd, err, out)
	}
	return strings.TrimSpace(string(out))
}
