// Package supervise starts, finds, watches and ends the helper processes of VMs: programs such as
// dnsmasq that work for one VM, outlive the shim that started them, and are found again by the next.
//
// A [Process] describes one of them as a value: the program, its rights, its namespaces, its pid
// file, and the mark that recognises it. Everything else works from that value alone, so that a shim
// that has just started ends a process as well as the shim that started it.
//
// The package leaves to its callers what a process works on, which processes there should be, and
// whether to start one again. It imports no other package of this module, so that every other may
// import it.
package supervise

import (
	"os"
	"syscall"
	"time"
)

// Process describes a helper process. Fields without a value have no effect, unless noted.
type Process struct {
	// Name is the program's name in errors.
	Name string
	// Program is the path of the program, or its name in PATH; Args are its arguments. The working
	// directory is /, and the environment has LC_ALL=C alone.
	Program string
	Args    []string
	// Files are the process's descriptors from 3 on. They stay the caller's.
	Files []*os.File
	// User runs the program with these ids and no other group. Without it the program starts as root
	// and gives up its rights itself.
	User *User
	// Capabilities are all that a program which starts as root can have; nil for no limit.
	Capabilities []uintptr
	// Namespaces are the CLONE_NEW* flags of the namespaces that the process has to itself. All others
	// are those of the thread that calls [Process.Start].
	Namespaces uintptr
	// IDs are the users and groups of the user namespace that the process has to itself. User is one
	// of that namespace then. Without a size the process is in its starter's.
	IDs syscall.SysProcIDMap

	// PIDFile is the path of a file with the process id, which the process itself writes: in decimal,
	// or as [WritePID] does. It is needed.
	PIDFile string
	// Argument is an argument of this process that no other process has. Without it the process is
	// recognised by its start time in PIDFile. One of both is needed: after a reboot the process id
	// alone may be another process's.
	Argument string

	// Daemon says that the program puts itself into the background when it is ready.
	// Without it, Ready says when the process is ready.
	Daemon bool
	// Ready reports whether a process that is no Daemon can be used. Start calls it until it does.
	// An error ends the process.
	Ready func(pid int) (bool, error)
	// Log is the path of the file that takes the output of a process that is no Daemon.
	Log string
	// Started, if not nil, is called when a process that is no Daemon has its Files, while it
	// makes itself ready: to put it into a cgroup, for example. An error ends the process.
	Started func(pid int) error

	// Grace is how long the process may take to end after SIGTERM, and after SIGKILL. It is needed.
	Grace time.Duration
}

// User is the user and the group of a process.
type User struct{ UID, GID uint32 }
