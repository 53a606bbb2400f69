package seed_test

import (
	"context"
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

	"github.com/nodevirt/nodevirt/shim/seed"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/needs"
)

func TestWrite(t *testing.T) {
	full := strings.Repeat("0123456789abcde\n", block/16)
	for _, tt := range []struct {
		name string
		seed vmspec.Seed
		want map[string]string
	}{
		{
			name: "all files",
			seed: vmspec.Seed{
				UserData:      "#cloud-config\nhostname: grün\n",
				MetaData:      "instance-id: web.default\n",
				NetworkConfig: "version: 2\n",
			},
			want: map[string]string{
				"user-data":      "#cloud-config\nhostname: grün\n",
				"meta-data":      "instance-id: web.default\n",
				"network-config": "version: 2\n",
			},
		},
		{
			name: "meta-data alone",
			seed: vmspec.Seed{MetaData: "instance-id: web.default\n"},
			want: map[string]string{"user-data": "", "meta-data": "instance-id: web.default\n"},
		},
		{
			name: "nothing",
			want: map[string]string{"user-data": "", "meta-data": ""},
		},
		{
			name: "whole blocks",
			seed: vmspec.Seed{MetaData: full, NetworkConfig: full + full, UserData: full},
			want: map[string]string{
				"meta-data": full, "network-config": full + full, "user-data": full,
			},
		},
		{
			name: "a byte around a block",
			seed: vmspec.Seed{MetaData: full[1:], UserData: full + "x"},
			want: map[string]string{"meta-data": full[1:], "user-data": full + "x"},
		},
		{
			name: "large",
			seed: vmspec.Seed{MetaData: "{}", UserData: strings.Repeat(full, 128)},
			want: map[string]string{"meta-data": "{}", "user-data": strings.Repeat(full, 128)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "seed.iso")
			if err := seed.Write(t.Context(), path, tt.seed); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, readISO(t, path).files()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if got := names(t, folder); !slices.Equal(got, []string{"seed.iso"}) {
				t.Errorf("beside the image: %q", got)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != 0o600 {
				t.Errorf("mode %v", info.Mode())
			}
			if info.Size()%block != 0 {
				t.Errorf("%d bytes are no whole blocks", info.Size())
			}
		})
	}
}

func TestLabel(t *testing.T) {
	needs.Parts(t, "blkid")
	path := filepath.Join(t.TempDir(), "seed.iso")
	if err := seed.Write(t.Context(), path, vmspec.Seed{MetaData: "instance-id: a\n"}); err != nil {
		t.Fatal(err)
	}
	if got := readISO(t, path).label(); got != seed.Label {
		t.Errorf("label %q, want %q", got, seed.Label)
	}
	for tag, want := range map[string]string{"LABEL": "cidata", "TYPE": "iso9660"} {
		got := run(t, "blkid", "--probe", "--output", "value", "--match-tag", tag, path)
		if got != want {
			t.Errorf("%s: %q, want %q", tag, got, want)
		}
	}
}

func TestReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed.iso")
	for _, id := range []string{"instance-id: a\n", "instance-id: b\n"} {
		if err := seed.Write(t.Context(), path, vmspec.Seed{MetaData: id}); err != nil {
			t.Fatal(err)
		}
		if got := readISO(t, path).files()["meta-data"]; got != id {
			t.Errorf("meta-data %q, want %q", got, id)
		}
	}
}

// TestFullDisk fills the disk at every step of the way: files, image, the
// library's unchecked writes.
func TestFullDisk(t *testing.T) {
	folder := t.TempDir()
	inMountNamespace(t, func() {
		big := vmspec.Seed{UserData: strings.Repeat("x", 64<<10), MetaData: "instance-id: a\n"}
		failed := 0
		for _, size := range []string{"32k", "72k", "80k", "100k", "112k", "128k", "144k", "160k"} {
			run(t, "mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", folder)
			err := seed.Write(t.Context(), filepath.Join(folder, "seed.iso"), big)
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
	path := filepath.Join(folder, "seed.iso")
	if err := seed.Write(canceled, path, vmspec.Seed{}); err == nil ||
		err.Error() != "write seed "+path+": context canceled" {
		t.Errorf("canceled: %v", err)
	}
	missing := filepath.Join(folder, "missing", "seed.iso")
	if err := seed.Write(t.Context(), missing, vmspec.Seed{}); err == nil ||
		!strings.HasPrefix(err.Error(), "write seed "+missing+": create image: ") {
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
