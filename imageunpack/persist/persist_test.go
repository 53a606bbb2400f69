package persist_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack/confine/confinetest"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/needs"
)

const mib = 1 << 20

// uid is the user that reads disks.
const uid = 1_900_000_007

// childVariable makes a test binary write the volume that it names, and end.
const childVariable = "NODEVIRT_PERSIST_TEST"

func TestMain(m *testing.M) {
	confinetest.Enter()
	persist.SetPart(mib, 256*mib)
	if of := os.Getenv(childVariable); of != "" {
		source, volume, _ := strings.Cut(of, ":")
		if err := write(context.Background(), source, volume, "."); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func write(ctx context.Context, source, volume, scratch string) error {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(volume, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	return persist.Write(ctx, to, persist.Source{
		Tool: tool(), UID: uid, File: from, Format: "qcow2", Size: size(source), Key: source, Scratch: scratch, Turn: free,
	}, func(float64) {})
}

func tool() expand.Tool {
	return expand.Tool{QemuNBD: "qemu-nbd", Stage: confinetest.Stage(), Dir: os.TempDir()}
}

// free is a turn that is free at once.
func free(context.Context) (func(), error) { return func() {}, nil }

// size is that of a disk of these tests, whose names begin with it in MiB.
func size(path string) int64 {
	var n int64
	_, _ = fmt.Sscanf(filepath.Base(path), "%d-", &n)
	return n * mib
}

// disk makes a qcow2 disk with random content here and there, and returns its raw twin, too.
func disk(t *testing.T, size int64, at ...int64) (path, raw string) {
	t.Helper()
	needs.Parts(t, "root, QEMU")
	dir := t.TempDir()
	raw = filepath.Join(dir, "raw")
	f, err := os.Create(raw)
	assert.NilError(t, err)
	assert.NilError(t, f.Truncate(size*mib))
	for _, offset := range at {
		b := make([]byte, 3*mib/2)
		_, _ = rand.Read(b) // never fails
		_, err := f.WriteAt(b[:min(int64(len(b)), size*mib-offset)], offset)
		assert.NilError(t, err)
	}
	assert.NilError(t, f.Close())
	path = filepath.Join(dir, fmt.Sprintf("%d-disk.qcow2", size))
	out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", raw, path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path, raw
}

// same compares a volume's beginning with a raw disk.
func same(t *testing.T, raw, volume string) {
	t.Helper()
	a, err := os.Open(raw)
	assert.NilError(t, err)
	defer a.Close()
	b, err := os.Open(volume)
	assert.NilError(t, err)
	defer b.Close()
	x, y := make([]byte, mib), make([]byte, mib)
	for at := int64(0); ; at += mib {
		n, err := io.ReadFull(a, x)
		if n == 0 {
			return
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		_, err = io.ReadFull(b, y[:n])
		assert.NilError(t, err)
		if !bytes.Equal(x[:n], y[:n]) {
			t.Fatalf("the volume differs in the MiB at %d", at)
		}
	}
}

func isDisk(t *testing.T, volume string) bool {
	t.Helper()
	is, _ := look(t, volume)
	return is
}

// look returns what a volume is, and how much of it is written.
func look(t *testing.T, volume string) (disk bool, written int64) {
	t.Helper()
	f, err := os.Open(volume)
	if errors.Is(err, os.ErrNotExist) {
		return false, 0
	}
	assert.NilError(t, err)
	defer f.Close()
	disk, written, err = persist.Look(f)
	assert.NilError(t, err)
	return disk, written
}

// TestKilled kills the writing of a volume again and again, by turns a little later than the last time
// and as soon as another part is noted: what was written before is not written again.
func TestKilled(t *testing.T) {
	source, raw := disk(t, 900, 0, 100*mib, 255*mib, 256*mib, 600*mib, 899*mib)
	for name, volume := range map[string]string{
		"file": filepath.Join(t.TempDir(), "volume"), "device": loopfs.Device(t, 900*mib),
	} {
		t.Run(name, func(t *testing.T) {
			kills, resumed, done := 0, 0, int64(0)
			for after := time.Duration(0); ; after += 5*time.Millisecond + after/4 {
				began := time.Now()
				ended, said := child(t, source, volume, func() bool {
					if kills%2 == 0 {
						return time.Since(began) >= after
					}
					_, now := look(t, volume)
					return now > done
				})
				if ended {
					break
				}
				if strings.Contains(said, persist.ErrInUse.Error()) {
					continue // what the killed process had just forked has the lock until it is qemu-img
				}
				if said != "" {
					t.Fatal(said)
				}
				is, now := look(t, volume)
				if kills++; is {
					break // it came to the end, but not to say so
				}
				if now < done {
					t.Fatalf("%d bytes were written, now it is %d", done, now)
				}
				if done = now; done > 0 {
					resumed++
				}
			}
			if kills < 3 || resumed == 0 {
				t.Errorf("the writing was killed %d times only, and went on %d times", kills, resumed)
			}
			same(t, raw, volume)
			// From now on the volume is the guest's.
			f, err := os.OpenFile(volume, os.O_RDWR, 0)
			assert.NilError(t, err)
			defer f.Close()
			_, err = f.WriteAt([]byte("the guest's"), 5*mib)
			assert.NilError(t, err)
			assert.NilError(t, write(t.Context(), source, volume, t.TempDir()))
			b := make([]byte, 11)
			if _, err := f.ReadAt(b, 5*mib); err != nil || string(b) != "the guest's" {
				t.Errorf("the volume was written again: %q, %v", b, err)
			}
		})
	}
}

// child writes a volume in a child process, which is killed on request.
func child(t *testing.T, source, volume string, asked func() bool) (ended bool, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+source+":"+volume)
	cmd.Dir = t.TempDir()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	assert.NilError(t, cmd.Start())
	result := make(chan error, 1)
	go func() { result <- cmd.Wait() }()
	for killed := false; ; {
		select {
		case err := <-result:
			return err == nil, stderr.String()
		case <-time.After(time.Millisecond):
			if !killed && asked() {
				killed = cmd.Process.Kill() == nil
			}
		}
	}
}

// TestToolKilled: a qemu-nbd that is killed is an error, after which the writing goes on where it was.
func TestToolKilled(t *testing.T) {
	path, raw := disk(t, 600, 0, 300*mib, 599*mib)
	from, err := os.Open(path)
	assert.NilError(t, err)
	defer from.Close()
	volume := filepath.Join(t.TempDir(), "volume")
	to, err := os.OpenFile(volume, os.O_RDWR|os.O_CREATE, 0o600)
	assert.NilError(t, err)
	defer to.Close()
	scratch, nbd := t.TempDir(), 0
	err = persist.Write(t.Context(), to, persist.Source{
		Tool: tool(), UID: uid, File: from, Format: "qcow2", Size: size(path), Key: path, Scratch: scratch, Turn: free,
		Started: func(pid int) error {
			nbd = pid
			return nil
		},
	}, func(done float64) {
		if done > 0.4 {
			assert.Check(t, unix.Kill(nbd, unix.SIGKILL))
		}
	})
	if err == nil || !strings.Contains(err.Error(), "signal: killed") || isDisk(t, volume) {
		t.Fatalf("qemu-nbd was killed: %v; a disk: %t", err, isDisk(t, volume))
	}
	if _, done := look(t, volume); done != 257*mib { // the head, and the first part behind it
		t.Errorf("%d bytes are noted as written", done)
	}
	assert.NilError(t, write(t.Context(), path, volume, scratch))
	same(t, raw, volume)
	left, err := os.ReadDir(scratch)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}

func TestAnotherOrigin(t *testing.T) {
	first, _ := disk(t, 300, 0, 280*mib)
	volume := filepath.Join(t.TempDir(), "volume")
	ctx, cancel := context.WithCancel(t.Context())
	from, err := os.Open(first)
	assert.NilError(t, err)
	defer from.Close()
	to, err := os.OpenFile(volume, os.O_RDWR|os.O_CREATE, 0o600)
	assert.NilError(t, err)
	defer to.Close()
	err = persist.Write(ctx, to, persist.Source{
		Tool: tool(), File: from, Format: "qcow2", Size: 300 * mib, Key: "first", Scratch: t.TempDir(), Turn: free,
	}, func(done float64) {
		if done > 0.5 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || isDisk(t, volume) {
		t.Fatalf("cut off: %v; a disk: %t", err, isDisk(t, volume))
	}
	second, raw := disk(t, 20, 0, 10*mib)
	assert.NilError(t, write(t.Context(), second, volume, t.TempDir()))
	same(t, raw, volume)
}

// TestTurns: each part of a disk is written in a separate turn, and one that is not given ends the write.
func TestTurns(t *testing.T) {
	source, raw := disk(t, 300, 0, 290*mib)
	from, err := os.Open(source)
	assert.NilError(t, err)
	defer from.Close()
	volume := filepath.Join(t.TempDir(), "volume")
	to, err := os.OpenFile(volume, os.O_RDWR|os.O_CREATE, 0o600)
	assert.NilError(t, err)
	defer to.Close()
	taken, busy := 0, false
	why := errors.New("the pod is removed")
	s := persist.Source{Tool: tool(), File: from, Format: "qcow2", Size: 300 * mib, Key: "one", Scratch: t.TempDir()}
	s.Turn = func(context.Context) (func(), error) {
		if taken == 1 {
			return nil, why
		}
		if busy {
			t.Error("two turns at a time")
		}
		taken, busy = taken+1, true
		return func() { busy = false }, nil
	}
	if err := persist.Write(t.Context(), to, s, func(float64) {}); !errors.Is(err, why) || busy || isDisk(t, volume) {
		t.Fatalf("without a turn: %v; busy %t", err, busy)
	}
	taken = -10
	assert.NilError(t, persist.Write(t.Context(), to, s, func(float64) {}))
	if taken != -8 || busy { // the second part, which its data ends, and the third
		t.Errorf("%d more turns, busy %t", taken+10, busy)
	}
	same(t, raw, volume)
}

func TestRefuses(t *testing.T) {
	zeros, _ := disk(t, 4, 2*mib)
	volume := filepath.Join(t.TempDir(), "volume")
	if err := write(t.Context(), zeros, volume, t.TempDir()); !errors.Is(err, persist.ErrUnfit) {
		t.Errorf("a disk that begins with zeros: %v", err)
	}
	source, _ := disk(t, 4, 0)
	f, err := os.Open(volume)
	assert.NilError(t, err)
	defer f.Close()
	lock, err := os.OpenFile(volume, os.O_RDWR, 0)
	assert.NilError(t, err)
	defer lock.Close()
	unlock, err := persist.Lock(lock)
	assert.NilError(t, err)
	if err := write(t.Context(), source, volume, t.TempDir()); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("two writers: %v", err)
	}
	assert.NilError(t, unlock())
	assert.NilError(t, write(t.Context(), source, volume, t.TempDir()))
}

// TestDevice writes a loop device that is full of something else, but at both ends.
func TestDevice(t *testing.T) {
	source, raw := disk(t, 20, 0, 7*mib)
	old := bytes.Repeat([]byte("old "), 24*mib/4)
	clear(old[:mib])
	clear(old[23*mib:])
	device := loopfs.Device(t, 24*mib)
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	assert.NilError(t, err)
	_, err = f.Write(old)
	assert.NilError(t, errors.Join(err, f.Close()))
	assert.NilError(t, write(t.Context(), source, device, t.TempDir()))
	same(t, raw, device)
}

// TestTooSmall: a device that is too small is as it was.
func TestTooSmall(t *testing.T) {
	large, _ := disk(t, 30, 0)
	device := loopfs.Device(t, 24*mib)
	err := write(t.Context(), large, device, t.TempDir())
	if !errors.Is(err, persist.ErrUnfit) || !strings.Contains(err.Error(), "the disk has 31457280 bytes, and the volume 25165824") {
		t.Errorf("a device too small: %v", err)
	}
	content, err := os.ReadFile(device)
	assert.NilError(t, err)
	if len(bytes.Trim(content, "\x00")) > 0 {
		t.Error("the device was written")
	}
}

// TestLockOfADevice: it is the device's, whichever of its nodes is open.
func TestLockOfADevice(t *testing.T) {
	device := loopfs.Device(t, mib)
	var st unix.Stat_t
	assert.NilError(t, unix.Stat(device, &st))
	twin := filepath.Join(t.TempDir(), "twin")
	assert.NilError(t, unix.Mknod(twin, unix.S_IFBLK|0o600, int(st.Rdev)))
	first, err := os.OpenFile(device, os.O_RDWR, 0)
	assert.NilError(t, err)
	defer first.Close()
	second, err := os.OpenFile(twin, os.O_RDWR, 0)
	assert.NilError(t, err)
	defer second.Close()
	unlock, err := persist.Lock(first)
	assert.NilError(t, err)
	if _, err := persist.Lock(second); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("a second lock: %v", err)
	}
	assert.NilError(t, unlock())
	unlock, err = persist.Lock(second)
	assert.NilError(t, err)
	assert.NilError(t, unlock())
}
