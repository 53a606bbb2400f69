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

	"github.com/nodevirt/nodevirt/imageunpack/persist"
)

const mib = 1 << 20

// childVariable makes a test binary write the volume that it names, and end.
const childVariable = "NODEVIRT_PERSIST_TEST"

func TestMain(m *testing.M) {
	if of := os.Getenv(childVariable); of != "" {
		source, volume, _ := strings.Cut(of, ":")
		if err := write(context.Background(), source, volume, filepath.Dir(volume)); err != nil {
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
		QemuImg: "qemu-img", UID: 1900000007, File: from, Format: "qcow2", Size: size(source), Key: source, Scratch: scratch,
	}, func(float64) {})
}

// size is that of a disk of these tests, whose names begin with it in MiB.
func size(path string) int64 {
	var n int64
	_, _ = fmt.Sscanf(filepath.Base(path), "%d-", &n)
	return n * mib
}

// disk makes a qcow2 disk with random content here and there, and returns its raw twin, too.
func disk(t *testing.T, size int64, at ...int64) (path, raw string) {
	t.Helper()
	dir := t.TempDir()
	raw = filepath.Join(dir, "raw")
	f, err := os.Create(raw)
	check(t, err)
	check(t, f.Truncate(size*mib))
	for _, offset := range at {
		b := make([]byte, 3*mib/2)
		_, _ = rand.Read(b) // never fails
		_, err := f.WriteAt(b[:min(int64(len(b)), size*mib-offset)], offset)
		check(t, err)
	}
	check(t, f.Close())
	path = filepath.Join(dir, fmt.Sprintf("%d-disk.qcow2", size))
	out, err := exec.CommandContext(t.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", raw, path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path, raw
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same compares a volume's beginning with a raw disk.
func same(t *testing.T, raw, volume string) {
	t.Helper()
	a, err := os.Open(raw)
	check(t, err)
	defer a.Close()
	b, err := os.Open(volume)
	check(t, err)
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
		check(t, err)
		if !bytes.Equal(x[:n], y[:n]) {
			t.Fatalf("the volume differs in the MiB at %d", at)
		}
	}
}

func isDisk(t *testing.T, volume string) bool {
	t.Helper()
	f, err := os.Open(volume)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	check(t, err)
	defer f.Close()
	is, err := persist.IsDisk(f)
	check(t, err)
	return is
}

// TestKilled kills the writing of a volume again and again, each time a little later.
func TestKilled(t *testing.T) {
	source, raw := disk(t, 900, 0, 100*mib, 255*mib, 256*mib, 600*mib, 899*mib)
	volume := filepath.Join(t.TempDir(), "volume")
	kills := 0
	for after := time.Duration(0); ; after += 7 * time.Millisecond {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), childVariable+"="+source+":"+volume)
		var said bytes.Buffer
		cmd.Stderr = &said
		check(t, cmd.Start())
		kill := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		if kill.Stop(); err == nil {
			break
		}
		if said.Len() > 0 {
			t.Fatal(said.String())
		}
		if kills++; isDisk(t, volume) {
			same(t, raw, volume) // it came to the end, but not to say so
			break
		}
	}
	if kills < 3 {
		t.Errorf("the writing was killed %d times only", kills)
	}
	same(t, raw, volume)
	// From now on the volume is the guest's.
	f, err := os.OpenFile(volume, os.O_RDWR, 0)
	check(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("the guest's"), 5*mib)
	check(t, err)
	check(t, write(t.Context(), source, volume, t.TempDir()))
	b := make([]byte, 11)
	if _, err := f.ReadAt(b, 5*mib); err != nil || string(b) != "the guest's" {
		t.Errorf("the volume was written again: %q, %v", b, err)
	}
}

func TestAnotherOrigin(t *testing.T) {
	first, _ := disk(t, 300, 0, 280*mib)
	volume := filepath.Join(t.TempDir(), "volume")
	ctx, cancel := context.WithCancel(t.Context())
	from, err := os.Open(first)
	check(t, err)
	defer from.Close()
	to, err := os.OpenFile(volume, os.O_RDWR|os.O_CREATE, 0o600)
	check(t, err)
	defer to.Close()
	err = persist.Write(ctx, to, persist.Source{
		QemuImg: "qemu-img", File: from, Format: "qcow2", Size: 300 * mib, Key: "first", Scratch: t.TempDir(),
	}, func(done float64) {
		if done > 0.5 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || isDisk(t, volume) {
		t.Fatalf("cut off: %v; a disk: %t", err, isDisk(t, volume))
	}
	second, raw := disk(t, 20, 0, 10*mib)
	check(t, write(t.Context(), second, volume, t.TempDir()))
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
	check(t, err)
	defer f.Close()
	lock, err := os.OpenFile(volume, os.O_RDWR, 0)
	check(t, err)
	defer lock.Close()
	unlock, err := persist.Lock(lock)
	check(t, err)
	if err := write(t.Context(), source, volume, t.TempDir()); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("two writers: %v", err)
	}
	check(t, unlock())
	check(t, write(t.Context(), source, volume, t.TempDir()))
}

// TestDevice writes a loop device that is full of something else, but at both ends.
func TestDevice(t *testing.T) {
	source, raw := disk(t, 20, 0, 7*mib)
	backing := filepath.Join(t.TempDir(), "backing")
	old := bytes.Repeat([]byte("old "), 24*mib/4)
	clear(old[:mib])
	clear(old[23*mib:])
	check(t, os.WriteFile(backing, old, 0o600))
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", backing).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	check(t, write(t.Context(), source, device, t.TempDir()))
	same(t, raw, device)
	large, _ := disk(t, 30, 0)
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	check(t, err)
	_, err = f.WriteAt(make([]byte, 24*mib), 0)
	check(t, errors.Join(err, f.Close()))
	if err := write(t.Context(), large, device, t.TempDir()); !errors.Is(err, persist.ErrUnfit) {
		t.Errorf("a device too small: %v", err)
	}
}
