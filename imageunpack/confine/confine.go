// Package confine turns the calling process into a program of QEMU's that parses a stranger's disk.
//
// It owns what such a process may reach: a file tree with the program and its libraries alone, the
// rights of a user that owns no other files, no capability but perhaps one to read, and the system calls
// that reading and writing take. It leaves to its callers the start of the process, the files that it
// inherits, and its cgroup.
package confine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program is a program to execute, and what it may do.
type Program struct {
	// Path is the program's path. Args are its arguments, its name first.
	Path string
	Args []string
	// UID and GID are its user and its group.
	UID, GID uint32
	// ReadAll lets it read files of any owner, for a disk that only its owner can read. Its file tree
	// holds no other files.
	ReadAll bool
	// Descriptors are those that it inherits beside the first three.
	Descriptors []int
	// Listens has it take connections at ListenerFD, as systemd hands over a socket (sd_listen_fds(3)).
	Listens bool
	// EndsWithParent makes the kernel end it with the thread that started the calling process.
	EndsWithParent bool
}

// ListenerFD is the descriptor of a program that listens.
const ListenerFD = 3

// Enter executes the program that stdin describes in JSON. It returns only if that fails.
func Enter(root string) error {
	var p Program
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		return fmt.Errorf("read what to execute: %w", err)
	}
	return p.Execute(root, nil)
}

// Execute replaces the calling process, which has its own mount namespace. It mounts the file tree on the
// folder root; more, if not nil, adds to the tree before the process enters it. Execute returns only if
// it fails.
func (p Program) Execute(root string, more func(root string) error) error {
	runtime.LockOSThread()
	parent := os.Getppid()
	path, err := filepath.EvalSymlinks(p.Path) // of links, the tree has those of /usr alone
	if err != nil {
		return err
	}
	if err := enterTree(root, path, more); err != nil {
		return fmt.Errorf("create the file tree of %s: %w", p.Path, err)
	}
	for _, fd := range p.Descriptors {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep descriptor %d: %w", fd, err)
		}
	}
	if err := p.dropRights(); err != nil {
		return fmt.Errorf("give up root: %w", err)
	}
	if p.EndsWithParent { // a change of the user ends an earlier setting
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("end with the parent: %w", err)
		}
		if os.Getppid() != parent {
			return fmt.Errorf("start %s: the program that asked for it has ended", p.Path)
		}
	}
	if err := forbidCalls(); err != nil {
		return fmt.Errorf("limit the system calls: %w", err)
	}
	return fmt.Errorf("start %s: %w", p.Path, syscall.Exec(path, p.Args, p.environment()))
}

func (p Program) environment() []string {
	all := []string{"LC_ALL=C"}
	if p.Listens {
		all = append(all, fmt.Sprintf("LISTEN_PID=%d", os.Getpid()), "LISTEN_FDS=1")
	}
	return all
}
