package vmstate_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/vmstate"
	"github.com/nodevirt/nodevirt/test/needs"
)

func template(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vars.fd")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestVariables: they begin as the template, keep what was written, and one VM at a time has them,
// as long as a process has the descriptor.
func TestVariables(t *testing.T) {
	folder, from := t.TempDir(), template(t, "as new")
	f, err := vmstate.Variables(folder, from)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("is"), 0); err != nil {
		t.Fatal(err)
	}
	passed, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := vmstate.Variables(folder, from); !errors.Is(err, vmstate.ErrInUse) {
		t.Errorf("while another process has them: %v", err)
	}
	if err := unix.Close(passed); err != nil {
		t.Fatal(err)
	}
	again, err := vmstate.Variables(folder, from)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	text := make([]byte, 6)
	if _, err := again.ReadAt(text, 0); err != nil || string(text) != "is new" {
		t.Errorf("the second time: %q, %v", text, err)
	}
}

// TestBeginning: while one VM's variables are made, no other VM makes them.
func TestBeginning(t *testing.T) {
	folder := t.TempDir()
	dir, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := vmstate.Variables(folder, template(t, "as new")); !errors.Is(err, vmstate.ErrInUse) {
		t.Errorf("error %v", err)
	}
}

// TestInterrupted: a copy of the template that was cut off is made again.
func TestInterrupted(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "uefi-variables.new"), []byte("as"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vmstate.Variables(folder, template(t, "as new"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "as new" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestHostileVolumes(t *testing.T) {
	needs.Parts(t, "root")
	secret := template(t, "secret")
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"variables that are a link":    {func(d string) error { return os.Symlink(secret, filepath.Join(d, "uefi-variables")) }, "not a regular file"},
		"a copy that is a link":        {func(d string) error { return os.Symlink(secret, filepath.Join(d, "uefi-variables.new")) }, "make UEFI variables"},
		"variables that are a pipe":    {func(d string) error { return syscall.Mkfifo(filepath.Join(d, "uefi-variables"), 0o600) }, "not a regular file"},
		"variables of another size":    {func(d string) error { return os.WriteFile(filepath.Join(d, "uefi-variables"), []byte("x"), 0o600) }, "have 1 bytes, and this node's firmware needs 6"},
		"variables without an end":     {func(d string) error { return sparse(filepath.Join(d, "uefi-variables"), 65<<20) }, "more than 67108864 bytes"},
		"a TPM that is a link":         {func(d string) error { return os.Symlink(filepath.Dir(secret), filepath.Join(d, "tpm")) }, "not a folder"},
		"state that is a link":         {func(d string) error { return inTPM(d, func(t string) error { return os.Symlink(secret, t+"/a") }) }, "not a regular file"},
		"state that is a folder":       {func(d string) error { return inTPM(d, func(t string) error { return os.Mkdir(t+"/a", 0o700) }) }, "not a regular file"},
		"state without an end":         {func(d string) error { return inTPM(d, func(t string) error { return sparse(t+"/a", 2<<20) }) }, "more than 1048576 bytes"},
		"a TPM with very many files":   {func(d string) error { return inTPM(d, many) }, "more than 16 files"},
		"a lock that is a link":        {func(d string) error { return os.Symlink(secret, filepath.Join(d, "tpm.lock")) }, "unusable volume"},
		"a lock that is a pipe":        {func(d string) error { return syscall.Mkfifo(filepath.Join(d, "tpm.lock"), 0o600) }, "not a regular file"},
		"a volume that does not exist": {os.Remove, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "volume")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			v, variablesErr := vmstate.Variables(dir, secret)
			if variablesErr == nil {
				v.Close()
			}
			s, tpmErr := vmstate.TPM(dir, 1_900_060_001)
			if tpmErr == nil {
				s.Close()
			}
			if err := errors.Join(variablesErr, tpmErr); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want %q", err, c.want)
			}
			info, err := os.Stat(secret)
			if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 || info.Size() != 6 {
				t.Errorf("the file outside is %v, %v", info, err)
			}
		})
	}
}

func inTPM(dir string, do func(tpm string) error) error {
	tpm := filepath.Join(dir, "tpm")
	return errors.Join(os.Mkdir(tpm, 0o700), do(tpm))
}

func many(dir string) (err error) {
	for n := range 17 {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o600))
	}
	return err
}

func sparse(path string, size int64) error {
	return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size))
}

// TestTPM: each start has another user id, and one at a time has the state.
func TestTPM(t *testing.T) {
	needs.Parts(t, "root")
	folder := t.TempDir()
	for _, uid := range []uint32{1_900_060_001, 1_900_060_002} {
		dir, err := vmstate.TPM(folder, uid)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := vmstate.TPM(folder, uid); !errors.Is(err, vmstate.ErrInUse) {
			t.Errorf("a second TPM: %v", err)
		}
		file := filepath.Join(folder, "tpm", "tpm2-00.permall")
		if err := os.WriteFile(file, []byte("state"), 0o600); err != nil {
			t.Fatal(err)
		}
		dir.Close()
		if dir, err = vmstate.TPM(folder, uid); err != nil {
			t.Fatal(err)
		}
		dir.Close()
		for path, mode := range map[string]os.FileMode{filepath.Dir(file): 0o700, file: 0o600} {
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != mode || info.Sys().(*syscall.Stat_t).Uid != uid {
				t.Errorf("%s: %v, %v", path, info, err)
			}
		}
	}
}

// TestFormerLock: a former version of the shim locked the folder of a TPM's state.
func TestFormerLock(t *testing.T) {
	needs.Parts(t, "root")
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "tpm"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(filepath.Join(folder, "tpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := vmstate.TPM(folder, 1_900_060_001); !errors.Is(err, vmstate.ErrInUse) {
		t.Errorf("error %v", err)
	}
}

// TestLocksOfProcess: the shim releases and takes the locks of another process, which has them as long as it runs.
func TestLocksOfProcess(t *testing.T) {
	needs.Parts(t, "root")
	folder, from := t.TempDir(), template(t, "as new")
	v, err := vmstate.Variables(folder, from)
	if err != nil {
		t.Fatal(err)
	}
	s, err := vmstate.TPM(folder, 1_900_060_001)
	if err != nil {
		t.Fatal(err)
	}
	keeper := exec.CommandContext(t.Context(), "sleep", "600")
	keeper.ExtraFiles = []*os.File{v, s.Folder, s.Lock}
	if err := errors.Join(keeper.Start(), v.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	taken := func() bool {
		t.Helper()
		v, err := vmstate.Variables(folder, from)
		s, err2 := vmstate.TPM(folder, 1_900_060_001)
		if err == nil && err2 == nil {
			v.Close()
			s.Close()
			return false
		}
		if !errors.Is(err, vmstate.ErrInUse) || !errors.Is(err2, vmstate.ErrInUse) {
			t.Errorf("one of both is locked: %v, %v", err, err2)
		}
		return true
	}
	pid := keeper.Process.Pid
	for _, step := range []struct {
		do   func(string, int) error
		want bool
	}{{vmstate.Lock, true}, {vmstate.Unlock, false}, {vmstate.Unlock, false}, {vmstate.Lock, true}} {
		if err := step.do(folder, pid); err != nil {
			t.Fatal(err)
		}
		if taken() != step.want {
			t.Errorf("locked: %t", !step.want)
		}
	}
	if err := vmstate.Unlock(folder, pid); err != nil {
		t.Fatal(err)
	}
	other, err := vmstate.TPM(folder, 1_900_060_002)
	if err != nil {
		t.Fatal(err)
	}
	if err := vmstate.Lock(folder, pid); !errors.Is(err, vmstate.ErrInUse) {
		t.Errorf("while another VM has it: %v", err)
	}
	other.Close()
	_ = keeper.Process.Kill()
	_ = keeper.Wait()
	if err := errors.Join(vmstate.Lock(folder, pid), vmstate.Unlock(folder, pid)); err != nil || taken() {
		t.Errorf("of a process that has ended: %v", err)
	}
}

// TestAdopt: the state that came replaces the one in the volume, and is its new user's.
func TestAdopt(t *testing.T) {
	needs.Parts(t, "root")
	folder, came := t.TempDir(), t.TempDir()
	const uid = 1_900_060_002
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := vmstate.TPM(folder, 1_900_060_001)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	write(filepath.Join(folder, "tpm"), "tpm2-00.permall", "old")
	write(filepath.Join(folder, "tpm"), "tpm2-00.volatilestate", "old")
	write(filepath.Join(folder, "tpm"), ".lock", "")
	write(came, "tpm2-00.permall", "new")
	write(came, ".lock", "its own")
	for range 2 { // it was interrupted
		if err := s.Adopt(came, uid); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(folder, "tpm"))
	if err != nil || len(entries) != 2 {
		t.Errorf("files %v, %v", entries, err)
	}
	file := filepath.Join(folder, "tpm", "tpm2-00.permall")
	info, err := os.Stat(file)
	if text, _ := os.ReadFile(file); string(text) != "new" || err != nil || info.Sys().(*syscall.Stat_t).Uid != uid {
		t.Errorf("state %q, %v, %v", text, info, err)
	}
	if err := os.Symlink(file, filepath.Join(came, "link")); err != nil {
		t.Fatal(err)
	}
	if err := s.Adopt(came, uid); !errors.Is(err, vmstate.ErrUnusable) {
		t.Errorf("a link: %v", err)
	}
}
