package tpm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmstate"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

const (
	uid, client = 1_900_060_001, 1_900_060_002
	id          = "0123456789abcdef"
)

func owner() tpm.Owner { return tpm.Owner{ID: id, UID: uid, Client: client} }

// tpms returns the TPMs of a node, which end with the test.
func tpms(t *testing.T) (*tpm.TPMs, string) {
	t.Helper()
	base, err := os.MkdirTemp("", "tpm-") // a test's own is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o711); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "tpms")
	all, err := tpm.New("swtpm", dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := errors.Join(all.Sweep(ctx, func(string) bool { return false }), os.RemoveAll(base)); err != nil {
			t.Error(err)
		}
	})
	return all, dir
}

func ignore(int) error { return nil }

// TestLife starts a TPM, finds it as a shim does that has restarted, and ends it.
func TestLife(t *testing.T) {
	needs.Parts(t, "swtpm, and root")
	all, dir := tpms(t)
	placed := 0
	pid, err := all.Start(t.Context(), owner(), func(pid int) error { placed = pid; return nil })
	if err != nil || pid == 0 || placed != pid {
		t.Fatalf("process %d, placed %d, %v", pid, placed, err)
	}
	confined(t, pid)
	for path, want := range map[string]struct {
		owner int
		mode  fs.FileMode
	}{
		all.Socket(id):                  {client, 0o600},
		filepath.Join(dir, id, "state"): {uid, 0o700},
		filepath.Join(dir, id, "pid"):   {0, 0o600},
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want.mode || int(info.Sys().(*syscall.Stat_t).Uid) != want.owner {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	answers(t, all.Socket(id))
	again, err := tpm.New("swtpm", dir)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := again.Start(t.Context(), owner(), ignore); err != nil || found != pid {
		t.Errorf("another shim found process %d, %v; want %d", found, err, pid)
	}
	if err := again.Sweep(t.Context(), func(one string) bool { return one == id }); err != nil {
		t.Error(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := again.Watch(soon, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("watch: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- again.Watch(t.Context(), id) }()
	for range 2 {
		if err := again.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestState: state in a folder of the owner's, which swtpm can't reach by its path, outlives the TPM.
func TestState(t *testing.T) {
	needs.Parts(t, "swtpm, and root")
	all, _ := tpms(t)
	volume := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	var was []byte
	for range 2 {
		o := owner()
		state, err := vmstate.TPM(volume, uid)
		if err != nil {
			t.Fatal(err)
		}
		o.State, o.Lock = state.Folder, state.Lock
		pid, err := all.Start(t.Context(), o, ignore)
		if err != nil {
			t.Fatal(err)
		}
		state.Close()
		confined(t, pid)
		begins(t, all.Socket(id))
		if _, err := vmstate.TPM(volume, uid); !errors.Is(err, vmstate.ErrInUse) {
			t.Errorf("the state of a TPM that runs: %v", err)
		}
		now, err := os.ReadFile(filepath.Join(volume, "tpm", "tpm2-00.permall"))
		if err != nil || len(now) == 0 || was != nil && !bytes.Equal(now, was) {
			t.Errorf("%d bytes of state, %v, after %d", len(now), err, len(was))
		}
		if err := all.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if was, err = os.ReadFile(filepath.Join(volume, "tpm", "tpm2-00.permall")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeep: the state of a TPM that arrives reaches its owner's folder when the owner wants that, and later
// changes do so at once.
func TestKeep(t *testing.T) {
	needs.Parts(t, "swtpm, and root")
	all, dir := tpms(t)
	volume := t.TempDir()
	state, err := vmstate.ArrivingTPM(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	o := owner()
	o.State, o.Lock, o.Arrives = state.Folder, state.Lock, true
	pid, err := all.Start(t.Context(), o, ignore)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := all.PID(id); err != nil || found != pid {
		t.Errorf("process %d, %v; want %d", found, err, pid)
	}
	begins(t, all.Socket(id))
	kept := filepath.Join(volume, "tpm", "tpm2-00.permall")
	if _, err := os.Stat(kept); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volume has the state before its owner wants it: %v", err)
	}
	adoptions := 0
	for range 2 {
		if err := all.Keep(id, func(from string) error { adoptions++; return state.Adopt(from, uid) }); err != nil {
			t.Fatal(err)
		}
	}
	if adoptions != 1 {
		t.Errorf("adopted %d times", adoptions)
	}
	if _, err := os.Stat(filepath.Join(dir, id, "arrived")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state that came is left: %v", err)
	}
	if text, err := os.ReadFile(kept); err != nil || len(text) == 0 {
		t.Errorf("%d bytes of state, %v", len(text), err)
	}
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	begins(t, all.Socket(id)) // as a reset does
	if text, err := os.ReadFile(kept); err != nil || len(text) == 0 {
		t.Errorf("after a reset: %d bytes of state, %v", len(text), err)
	}
	if err := all.Keep("unknown", nil); err != nil {
		t.Errorf("an unknown TPM: %v", err)
	}
}

// begins initialises a TPM, as QEMU does (CMD_INIT), which then reads or makes its state.
func begins(t *testing.T, socket string) {
	t.Helper()
	if answer := control(t, socket, []byte{0, 0, 0, 2, 0, 0, 0, 0}, 4); binary.BigEndian.Uint32(answer) != 0 {
		t.Errorf("its start: %v", answer)
	}
}

// control sends a command to the control socket of a TPM, and returns its answer of a size.
func control(t *testing.T, socket string, command []byte, size int) []byte {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(command); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, size)
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatalf("command %v: %v, %v", command, answer, err)
	}
	return answer
}

// TestSuite is the suite that the fake of TPMs passes, too.
func TestSuite(t *testing.T) {
	needs.Parts(t, "swtpm, and root")
	all, _ := tpms(t)
	vmtest.TestTPMs(t, all, owner())
}

// confined checks the rights of swtpm.
func confined(t *testing.T, pid int) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	var text []byte
	wait.Until(t, "swtpm has its system call filter", func() bool { // it can be used shortly before
		var err error
		text, err = os.ReadFile(filepath.Join(proc, "status"))
		return err != nil || strings.Contains(string(text), "Seccomp:\t2\n")
	})
	for _, want := range []string{
		fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid), fmt.Sprintf("Gid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid),
		"Groups:\t \n", "CapEff:\t0000000000000000\n", "Seccomp:\t2\n", "NoNewPrivs:\t1\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("its status has no %q:\n%s", want, text)
		}
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if there, err := os.Readlink(filepath.Join(proc, "ns/net")); err != nil || there == own {
		t.Errorf("its network is %s, %v", there, err)
	}
	limits, err := os.ReadFile(filepath.Join(proc, "limits"))
	if err != nil || !strings.Contains(string(limits), "Max file size             1048576 ") {
		t.Errorf("its limits, %v:\n%s", err, limits)
	}
}

// answers asks a TPM for its capabilities, as QEMU does at its start (swtpm's man page
// swtpm_ioctls, CMD_GET_CAPABILITY).
func answers(t *testing.T, socket string) {
	t.Helper()
	if answer := control(t, socket, []byte{0, 0, 0, 1}, 8); binary.BigEndian.Uint64(answer) == 0 {
		t.Errorf("its capabilities: %v", answer)
	}
}

// TestFailures leave nothing.
func TestFailures(t *testing.T) {
	needs.Parts(t, "swtpm, and root")
	failed := errors.New("no cgroup")
	all, dir := tpms(t)
	if _, err := all.Start(t.Context(), owner(), func(int) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	broken, err := tpm.New("false", dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := broken.Start(t.Context(), owner(), ignore); err == nil || !strings.Contains(err.Error(), "start swtpm: ") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestMissing(t *testing.T) {
	all, err := tpm.New("/nonexistent/swtpm", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Start(t.Context(), owner(), ignore); !errors.Is(err, tpm.ErrMissing) || !strings.Contains(err.Error(), "install swtpm") {
		t.Errorf("error %v", err)
	}
}

// TestFilesEnd: a swtpm that is taken over writes no file of more than 1 MiB.
func TestFilesEnd(t *testing.T) {
	needs.Parts(t, "swtpm, and root")
	base, err := os.MkdirTemp("", "tpm-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	out, program := filepath.Join(base, "out"), filepath.Join(base, "swtpm")
	if err := errors.Join(
		os.Chmod(base, 0o711), os.WriteFile(out, nil, 0o600), os.Chown(out, uid, uid),
		os.WriteFile(program, []byte("#!/bin/sh\nhead -c 4194304 /dev/zero > "+out+"\n"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	all, err := tpm.New(program, filepath.Join(base, "tpms"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.Start(t.Context(), owner(), ignore); err == nil {
		t.Error("a program that is no TPM serves one")
	}
	info, err := os.Stat(out)
	if err != nil || info.Size() != 1<<20 {
		t.Errorf("it wrote %d bytes, %v", info.Size(), err)
	}
}
