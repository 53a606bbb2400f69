//go:build faults

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node"
)

// damages are what happens to a file while the daemon that reads it does not run.
var damages = map[string]func(path string, whole []byte) error{
	"missing":   func(path string, _ []byte) error { return os.Remove(path) },
	"empty":     func(path string, _ []byte) error { return os.Truncate(path, 0) },
	"truncated": func(path string, whole []byte) error { return os.Truncate(path, int64(len(whole)/2)) },
	"garbage":   func(path string, _ []byte) error { return os.WriteFile(path, []byte("\x00\xff garbage"), 0o600) },
	"newer": func(path string, whole []byte) error {
		return os.WriteFile(path, bytes.Replace(whole, []byte(`"version": `), []byte(`"version": 9`), 1), 0o600)
	},
}

// kept are files that a node keeps of a VM that runs, and the daemon that reads them.
func (r *round) kept() map[string]struct{ path, reader string } {
	domain := "default_" + r.name + "_" + r.container[:12]
	return map[string]struct{ path, reader string }{
		"record":     {shimRoot("containers", r.container, "record.json"), node.Shim},
		"status":     {filepath.Join(suite.Dir(), "run/libvirt/qemu", domain+".xml"), node.Libvirtd},
		"definition": {filepath.Join(suite.Dir(), "etc/libvirt/qemu", domain+".xml"), node.Libvirtd},
	}
}

// TestDamagedState damages each file that a node keeps of a VM, with its reader restarted. The guest runs on and is
// shown, no file or device is open for writing in two QEMUs, and with the file back the VM can be removed.
func TestDamagedState(t *testing.T) {
	for _, file := range []string{"record", "status", "definition"} {
		for damage, do := range damages {
			if damage == "newer" && file != "record" {
				continue
			}
			t.Run(file+" "+damage, func(t *testing.T) {
				r := begin(t)
				r.does(t, life[:started]...)
				k := r.kept()[file]
				before := processes(r.domain())
				r.loses(t, k.reader)
				whole, err := os.ReadFile(k.path)
				assert.NilError(t, err)
				assert.NilError(t, do(k.path, whole))
				assert.NilError(t, resume(t.Context(), k.reader))

				assert.NilError(t, answers(t.Context()))
				if now := processes(r.domain()); fmt.Sprint(now) != fmt.Sprint(before) {
					t.Errorf("its QEMU was %v and is %v", before, now)
				}
				if list, err := r.containers(t.Context()); err != nil || len(list) != 1 || list[0] != r.container {
					t.Errorf("of the pod there are the containers %q, %v", list, err)
				}
				assert.NilError(t, exclusive())

				assert.NilError(t, suite.Kill(t.Context(), k.reader, syscall.SIGKILL))
				assert.NilError(t, os.WriteFile(k.path, whole, 0o600))
				assert.NilError(t, resume(t.Context(), k.reader))
				assert.NilError(t, r.look(t.Context()))
			})
		}
	}
}

// exclusive returns an error if two QEMUs of the node have one file or one block device open for writing.
func exclusive() error {
	writers := map[string]int{}
	var errs []error
	for _, pid := range processes("guest=default_") {
		if !inNode(pid) {
			continue
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range files {
			what, ok := written(pid, f.Name())
			if !ok {
				continue
			}
			if other, taken := writers[what]; taken && other != pid {
				errs = append(errs, fmt.Errorf("processes %d and %d write to %s", other, pid, what))
			}
			writers[what] = pid
		}
	}
	return errors.Join(errs...)
}

// written identifies the regular file or the block device that a process has open for writing.
func written(pid int, fd string) (what string, ok bool) {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/fd/%s", pid, fd), &st) != nil {
		return "", false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		what = fmt.Sprintf("device %d", st.Rdev)
	case unix.S_IFREG:
		what = fmt.Sprintf("file %d on %d", st.Ino, st.Dev)
	default:
		return "", false
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	if err != nil {
		return "", false
	}
	_, flags, _ := strings.Cut(string(info), "flags:")
	var mode int
	if _, err := fmt.Sscanf(flags, "%o", &mode); err != nil {
		return "", false
	}
	return what, mode&unix.O_ACCMODE != unix.O_RDONLY
}
