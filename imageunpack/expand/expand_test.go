package expand_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack/confine/confinetest"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/needs"
)

const mib = 1 << 20

// user is one that owns nothing.
const user = 1_987_654_321

// content is a disk of 64 MiB with 4 MiB of data here and there.
func content() []byte {
	b := make([]byte, 64*mib)
	r := rand.NewChaCha8([32]byte{})
	for i := range 4 {
		_, _ = r.Read(b[i*13*mib : i*13*mib+mib]) // never fails
	}
	return b
}

// disk is a disk's file in a format; see qemu-img's -o.
func disk(t *testing.T, format string, options ...string) string {
	t.Helper()
	needs.Parts(t, "QEMU")
	dir := t.TempDir()
	raw := filepath.Join(dir, "raw")
	assert.NilError(t, os.WriteFile(raw, content(), 0o600))
	if format == "raw" {
		return raw
	}
	path := filepath.Join(dir, "disk")
	args := append([]string{"convert", "-f", "raw", "-O", format}, options...)
	out, err := exec.Command("qemu-img", append(args, raw, path)...).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	assert.NilError(t, os.Chmod(path, 0o600))
	return path
}

func image(n int) string { return fmt.Sprintf("sha256:%064x", n) }

// source opens a disk's file.
func source(t *testing.T, path, format string, n int) expand.Source {
	t.Helper()
	f, err := os.Open(path)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return expand.Source{
		File: f, Format: format, Size: 64 * mib, Needs: 8 * mib, UID: user,
		Key: expand.Key{Image: image(n), Path: "/disk/a.qcow2"},
	}
}

// bomb is a disk that takes minutes to expand.
func bomb(t *testing.T, n int) expand.Source {
	t.Helper()
	b, err := guest.CompressedBomb()
	assert.NilError(t, err)
	path := filepath.Join(t.TempDir(), "bomb")
	assert.NilError(t, os.WriteFile(path, b, 0o600))
	s := source(t, path, "qcow2", n)
	s.Size = 1 << 39
	return s
}

// TestMain is the stage of conversions, too.
func TestMain(m *testing.M) {
	confinetest.Enter()
	os.Exit(m.Run())
}

func tool(t *testing.T) expand.Tool {
	t.Helper()
	return expand.Tool{QemuImg: "qemu-img", Stage: confinetest.Stage(), Dir: t.TempDir()}
}

func expander(t *testing.T, dir string, change ...func(*expand.Options)) *expand.Expander {
	t.Helper()
	o := expand.Options{Tool: tool(t), Dir: filepath.Join(dir, "bases"), Limit: 1 << 30, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	e, err := expand.New(o)
	assert.NilError(t, err)
	t.Cleanup(e.Close)
	return e
}

// fileSystem is one of a kind, empty, of 512 MiB.
func fileSystem(t *testing.T, kind string) string { return sized(t, kind, 512*mib) }

func sized(t *testing.T, kind string, size int64) string {
	t.Helper()
	needs.Parts(t, "root, QEMU")
	fs, err := loopfs.New(t.TempDir(), kind, size)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, fs.Close()) })
	return fs.Path
}

func silent(expand.Progress) {}

func TestExpand(t *testing.T) {
	want := sha256.Sum256(content())
	for _, kind := range []string{loopfs.Ext4, loopfs.XFS, loopfs.Btrfs} {
		t.Run(kind, func(t *testing.T) {
			dir := fileSystem(t, kind)
			e := expander(t, dir)
			if got := e.Reflink(); got != (kind != loopfs.Ext4) {
				t.Errorf("%s has reflinks: %v", kind, got)
			}
			for i, format := range [][]string{{"raw"}, {"qcow2"}, {"qcow2", "-c"}, {"qcow2", "-c", "-o", "compression_type=zstd"}} {
				t.Run(strings.Join(format, " "), func(t *testing.T) {
					from := disk(t, format[0], format[1:]...)
					before := digest(t, from)
					path := filepath.Join(dir, fmt.Sprintf("%d.raw", i))
					last := expand.Progress{}
					assert.NilError(t, e.Expand(t.Context(), source(t, from, format[0], i), path, func(p expand.Progress) { last = p }))
					if got := digest(t, path); got != hex.EncodeToString(want[:]) {
						t.Error("the content is another")
					}
					checkFile(t, path)
					if !e.Reflink() && last.Done != 1 {
						t.Errorf("the last progress was %+v", last)
					}
					if digest(t, from) != before {
						t.Error("the image's file was changed")
					}
				})
			}
			if u := e.Usage(); (u.Bases != 0) != e.Reflink() || u.Bytes < int64(u.Bases)*4*mib || u.Bytes > int64(u.Bases)*8*mib {
				t.Errorf("the bases take %+v", u)
			}
		})
	}
}

func checkFile(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	assert.NilError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	if info.Mode() != 0o600 || st.Uid != 0 || st.Gid != 0 || st.Blocks*512 > 8*mib {
		t.Errorf("the file is %v of %d:%d and takes %d", info.Mode(), st.Uid, st.Gid, st.Blocks*512)
	}
}

// TestOffload: where the image is on the same file system with reflinks, a base shares its data.
func TestOffload(t *testing.T) {
	dir := fileSystem(t, loopfs.XFS)
	from := filepath.Join(dir, "disk.qcow2")
	text, err := os.ReadFile(disk(t, "qcow2"))
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(from, text, 0o600))
	e := expander(t, dir)
	unix := func() int64 { f, err := os.Open(dir); assert.NilError(t, err); defer f.Close(); return free(t, f) }
	syscall.Sync()
	before := unix()
	assert.NilError(t, e.Expand(t.Context(), source(t, from, "qcow2", 1), filepath.Join(dir, "a"), silent))
	e.Close() // the base is synced
	if took := before - unix(); took > mib {
		t.Errorf("a disk with 4 MiB of data took %d bytes", took)
	}
}

func free(t *testing.T, f *os.File) int64 {
	t.Helper()
	var st syscall.Statfs_t
	assert.NilError(t, syscall.Fstatfs(int(f.Fd()), &st))
	return int64(st.Bavail) * st.Bsize
}

// TestClonesAreApart: what is written to one is in no other, nor in the base.
func TestClonesAreApart(t *testing.T) {
	dir := fileSystem(t, loopfs.XFS)
	e := expander(t, dir)
	s := source(t, disk(t, "qcow2", "-c"), "qcow2", 1)
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")}
	assert.NilError(t, e.Expand(t.Context(), s, paths[0], silent))
	assert.NilError(t, e.Expand(t.Context(), s, paths[1], silent))
	before := digest(t, paths[1])
	f, err := os.OpenFile(paths[0], os.O_WRONLY, 0)
	assert.NilError(t, err)
	_, err = f.WriteAt([]byte("mine"), 100)
	assert.NilError(t, errors.Join(err, f.Close()))
	assert.NilError(t, e.Expand(t.Context(), s, paths[2], silent))
	if digest(t, paths[1]) != before || digest(t, paths[2]) != before || digest(t, paths[0]) == before {
		t.Error("clones have writes in common")
	}
	if u := e.Usage(); u.Bases != 1 {
		t.Errorf("usage %+v after three clones", u)
	}
	if err := e.Expand(t.Context(), s, paths[0], silent); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file that is there: %v", err)
	}
}

func TestNoRoom(t *testing.T) {
	for _, kind := range []string{loopfs.Ext4, loopfs.XFS} {
		for name, needs := range map[string]int64{"known before": 340 * mib, "found out": mib} {
			t.Run(kind+" "+name, func(t *testing.T) {
				dir := sized(t, kind, 320*mib) // no xfs is smaller
				from := filepath.Join(t.TempDir(), "large")
				f, err := os.Create(from)
				assert.NilError(t, err)
				_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), 340*mib)
				assert.NilError(t, errors.Join(err, f.Close()))
				s := source(t, from, "raw", 1)
				s.Size, s.Needs = 340*mib, needs
				e := expander(t, dir)
				err = e.Expand(t.Context(), s, filepath.Join(dir, "a"), silent)
				if !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("340 MiB on 320: %v", err)
				}
				wantNothing(t, e, dir)
			})
		}
	}
}

func TestReserve(t *testing.T) {
	dir := fileSystem(t, loopfs.Ext4)
	e := expander(t, dir, func(o *expand.Options) { o.Reserve = 1 << 30 })
	err := e.Expand(t.Context(), source(t, disk(t, "raw"), "raw", 1), filepath.Join(dir, "a"), silent)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "1Gi stay free") {
		t.Errorf("with more reserved than there is: %v", err)
	}
	wantNothing(t, e, dir)
}

// TestPromises: two disks that have room one by one have none together.
func TestPromises(t *testing.T) {
	dir := fileSystem(t, loopfs.Ext4)
	e := expander(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	first := bomb(t, 1)
	first.Needs = 300 * mib
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- e.Expand(ctx, first, filepath.Join(dir, "a"), func(expand.Progress) {
			select {
			case <-begun:
			default:
				close(begun)
			}
		})
	}()
	<-begun
	second := source(t, disk(t, "raw"), "raw", 2)
	second.Needs, second.Namespace = 300*mib, "other"
	if err := e.Expand(t.Context(), second, filepath.Join(dir, "b"), silent); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a second disk: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the first disk: %v", err)
	}
	assert.NilError(t, e.Expand(t.Context(), second, filepath.Join(dir, "b"), silent))
}

// TestCancel: an expansion that is given up leaves nothing.
func TestCancel(t *testing.T) {
	for _, kind := range []string{loopfs.Ext4, loopfs.XFS} {
		t.Run(kind, func(t *testing.T) {
			dir := fileSystem(t, kind)
			e := expander(t, dir)
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("why")
			err := e.Expand(ctx, bomb(t, 1), filepath.Join(dir, "a"), func(expand.Progress) { cancel(why) })
			if !errors.Is(err, why) {
				t.Errorf("given up: %v", err)
			}
			e.Close()
			wantNothing(t, e, dir)
		})
	}
}

func wantNothing(t *testing.T, e *expand.Expander, dir string) {
	t.Helper()
	e.Close()
	if names := entries(t, filepath.Join(dir, "bases")); len(names) > 0 || e.Usage() != (expand.Usage{}) {
		t.Errorf("left are the bases %q, %+v", names, e.Usage())
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left is the file: %v", err)
	}
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	assert.NilError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func digest(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	assert.NilError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

// TestOutsideOfACgroup: a conversion that can't join its cgroup reads nothing of the disk, and leaves no file.
func TestOutsideOfACgroup(t *testing.T) {
	dir := t.TempDir()
	s := source(t, disk(t, "qcow2"), "qcow2", 1)
	refused := errors.New("no such cgroup")
	s.Started = func(int) error { return refused }
	path := filepath.Join(dir, "converted")
	if err := expander(t, dir).Expand(t.Context(), s, path, silent); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it left a file: %v", err)
	}
}
