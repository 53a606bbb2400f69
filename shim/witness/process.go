package witness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Node finds the processes of one node's VMs.
type Node struct {
	// FirstUID is the first of UIDs user IDs of VMs.
	FirstUID, UIDs uint32
}

// proc is where the kernel shows processes.
const proc = "/proc"

// Process is a process of a VM's user.
type Process struct {
	PID int
	UID uint32
	// Stranger is true for a process of an ordinary container, which can have a VM's user ID and an emulator's name, and
	// is no VM's.
	Stranger bool
	// Emulator is true for the QEMU that runs a guest, by the program that it executes, and false for processes beside
	// it, which show a disk or read an image, and for strangers.
	Emulator bool
	// Domain and UUID are libvirt's names of the VM, from the command line, which a guest that has taken over
	// its QEMU can change; empty if it has none.
	Domain, UUID string
	// Container is the ID of the VM's container, from the cgroup; empty until QEMU is placed, before the
	// guest's first instruction.
	Container string
	// Group is the path of the pod's cgroup, in which the container's is; empty without Container.
	Group string
	// Remote are the disks that QEMU opens over the network, from the command line: the kernel does not know them. A
	// guest that has taken over its QEMU can change them.
	Remote []RemoteDisk
}

// Identity is what a record knows of a VM.
type Identity struct {
	Container string
	// UID is 0 if it is not known.
	UID uint32
}

// Is reports whether a process is the QEMU of a VM: by its cgroup, and before it was placed there by its user. A user
// ID may be another VM's by the time it is compared.
func (p Process) Is(id Identity) bool {
	if p.Container != "" && id.Container != "" {
		return p.Emulator && p.Container == id.Container
	}
	return p.Emulator && id.UID != 0 && p.UID == id.UID
}

// Of returns whether a VM has a QEMU on the node.
func Of(all []Process, id Identity) Presence {
	for _, p := range all {
		if p.Is(id) {
			return Present
		}
	}
	return Absent
}

// Processes returns the processes of VMs' users.
func (n Node) Processes() ([]Process, error) {
	s, err := n.Scan()
	if err != nil {
		return nil, err
	}
	return s.Processes(), nil
}

// Users returns the user IDs of VMs that processes have.
func (n Node) Users() (map[uint32]bool, error) {
	s, err := n.Scan()
	if err != nil {
		return nil, err
	}
	return s.Users(), nil
}

const (
	// maxStatus is longer than any /proc/PID/status.
	maxStatus = 64 << 10
	// maxCmdline is longer than the command line of a QEMU with as many disks as a VM can have. A process can
	// make its command line as long as its memory.
	maxCmdline = 1 << 20
	maxGroups  = 64 << 10
)

// read returns a process of a VM's user, and false for one of another user or of a stranger, or that has ended.
func (n Node) read(pid int) (Process, bool, error) {
	p, there, err := n.look(pid)
	return p, there && n.has(p.UID) && !p.Stranger, err
}

// look returns a process of a VM's user, or a QEMU of another user, and false for any other, or one that has ended.
func (n Node) look(pid int) (p Process, there bool, err error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	text, err := head(filepath.Join(dir, "status"), maxStatus)
	if ended(err) {
		return p, false, nil
	}
	if err != nil {
		return p, false, err
	}
	s, err := parseStatus(string(text))
	if err != nil {
		return p, false, fmt.Errorf("process %d: %w", pid, err)
	}
	emulates := s.emulates(dir)
	if s.dead() || !n.has(s.uid) && !emulates {
		return p, false, nil
	}
	groups, err := head(filepath.Join(dir, "cgroup"), maxGroups)
	if err != nil && !ended(err) {
		return p, false, err
	}
	own, err := head(filepath.Join(proc, "self", "cgroup"), maxGroups)
	if err != nil {
		return p, false, err
	}
	p = Process{PID: pid, UID: s.uid}
	var foreign bool
	p.Container, p.Group, foreign = container(string(groups), string(own))
	if p.Stranger = foreign || s.nested; p.Stranger {
		return p, true, nil
	}
	cmdline, err := head(filepath.Join(dir, "cmdline"), maxCmdline)
	if err != nil && !ended(err) {
		return p, false, err
	}
	args := bytes.Split(cmdline, []byte{0})
	p.Domain, p.UUID = names(args)
	// One whose first thread has ended may be QEMU.
	if p.Emulator = emulates || n.has(p.UID) && s.zombie; p.Emulator {
		p.Remote = remoteDisks(args)
	}
	return p, true, nil
}

// status is what /proc/PID/status says.
type status struct {
	name    string // of the program, cut off after 15 bytes
	uid     uint32
	zombie  bool
	threads int
	nested  bool // in another PID namespace than this process
}

// dead reports whether no thread of the process runs: its files are closed.
func (s status) dead() bool { return s.zombie && s.threads <= 1 }

func parseStatus(text string) (status, error) {
	var s status
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch key {
		case "Name":
			s.name = fields[0]
		case "NSpid":
			s.nested = len(fields) > 1
		case "State":
			s.zombie = fields[0] == "Z" || fields[0] == "X"
		case "Uid":
			uid, err := strconv.ParseUint(fields[0], 10, 32)
			if err != nil {
				return s, fmt.Errorf("user %q is not a number", fields[0])
			}
			s.uid = uint32(uid)
		case "Threads":
			threads, err := strconv.Atoi(fields[0])
			if err != nil {
				return s, fmt.Errorf("%q threads is not a number", fields[0])
			}
			s.threads = threads
		}
	}
	return s, nil
}

// emulates reports whether a process executes QEMU. A process cannot change its program; one that has ended, but whose
// files are not closed yet, has only the program's name left.
func (s status) emulates(dir string) bool {
	program, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return IsEmulator(s.name)
	}
	return IsEmulator(program)
}

// emulators are parts of the names of QEMU on all distributions, and of the program that limits QEMU and then executes
// it, shim/domain/landlock.
var emulators = []string{"qemu-system-", "qemu-kvm", "nodevirt-qemu"}

// IsEmulator reports whether a program's path has the name of QEMU, and not that of a process beside it.
func IsEmulator(path string) bool {
	return slices.ContainsFunc(emulators, func(name string) bool { return strings.Contains(filepath.Base(path), name) })
}

// goodName is a name that the shim gives domains. Any other is not shown: a guest that has taken over its QEMU may
// have written it, and administrators paste it into a shell.
var goodName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}$`)

// names returns the domain's name and UUID from QEMU's command line.
func names(args [][]byte) (name, uuid string) {
	for i, arg := range args {
		if found, ok := strings.CutPrefix(string(arg), "guest="); ok && name == "" {
			name, _, _ = strings.Cut(found, ",")
		}
		if string(arg) == "-uuid" && i+1 < len(args) && uuid == "" {
			uuid = string(args[i+1])
		}
	}
	return known(name), known(uuid)
}

func known(name string) string {
	if goodName.MatchString(name) {
		return name
	}
	return ""
}

// groupName is the cgroup of a VM, or of an ordinary container: its ID, or a systemd scope with it and the prefix
// of its runtime. Without systemd, the two look the same.
var groupName = regexp.MustCompile(`^(?:([a-z][a-z-]*)-)?([0-9a-f]{64})(?:\.scope)?$`)

// container finds the container's ID in /proc/PID/cgroup, and the path of the group that the container's is in. foreign
// is true in a scope of another runtime, without an ID. own is the same file of this process: a node can be a container
// itself, whose ID is in all paths.
func container(groups, own string) (id, parent string, foreign bool) {
	for line := range strings.Lines(groups) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, path, _ := strings.Cut(rest, ":")
		parts := strings.Split(path, "/")
		for i, part := range parts {
			found := groupName.FindStringSubmatch(part)
			switch {
			case found == nil || strings.Contains(own, found[2]):
			case found[1] != "" && found[1] != "nodevirt":
				return "", "", true
			default:
				return found[2], strings.Join(parts[:i], "/"), false
			}
		}
	}
	return "", "", false
}

// head reads the beginning of a file, whose length a guest may control.
func head(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// ended reports whether an error means that the process has ended.
func ended(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}
