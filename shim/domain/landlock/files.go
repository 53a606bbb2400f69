package landlock

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Variable is the variable of QEMU's environment that holds the VM's Files.
const Variable = "NODEVIRT_FILES"

// Files are what a VM's QEMU opens by path, beside what every QEMU opens. The permissions of the files
// apply as well.
type Files struct {
	// Read and Write are paths of files and devices.
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	// Sockets are folders in which QEMU makes sockets.
	Sockets []string `json:"sockets,omitempty"`
}

// Encode returns the text for [Variable].
func (f Files) Encode() (string, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("encode the files of QEMU: %w", err)
	}
	return string(text), nil
}

// vmRules returns the rules for the files that QEMU's environment lists. Without a list QEMU runs no
// guest: libvirt asks it what it can do, over a socket in the folder of the file for its process id.
func vmRules(args, env []string) ([]rule, error) {
	text, found := lookup(env, Variable)
	if !found {
		if i := slices.Index(args, "-pidfile"); i >= 0 && i+1 < len(args) {
			return []rule{{path: filepath.Dir(args[i+1]), rights: read | write | create | sockets}}, nil
		}
		return nil, nil
	}
	var f Files
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, fmt.Errorf("decode %s: %w", Variable, err)
	}
	all := f.rules()
	// libvirt's folder for the domain has the key of the secrets in QEMU's arguments, and the file to
	// which QEMU writes a picture of its display.
	if home, _ := lookup(env, "HOME"); strings.HasPrefix(filepath.Base(home), "domain-") {
		all = append(all, rule{path: home, rights: read | write})
	}
	return all, nil
}

func lookup(env []string, name string) (value string, found bool) {
	for _, e := range env {
		if value, found = strings.CutPrefix(e, name+"="); found {
			return value, true
		}
	}
	return "", false
}

const (
	read  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	write = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	// control is for devices: a block device can't be read without its size.
	control = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	create  = unix.LANDLOCK_ACCESS_FS_MAKE_REG
	sockets = unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
	execute = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
)

// rules returns the rules for a VM's files.
func (f Files) rules() (all []rule) {
	for _, path := range f.Read {
		all = append(all, rule{path: path, rights: read | control})
	}
	for _, path := range f.Write {
		all = append(all, rule{path: path, rights: read | write | control})
	}
	for _, path := range f.Sockets {
		all = append(all, rule{path: path, rights: sockets})
	}
	for _, path := range slices.Concat(f.Read, f.Write) {
		if device := limitsOf(path); device != "" {
			all = append(all, rule{path: device, rights: read, optional: true})
		}
	}
	return all
}

// limitsOf returns the folder in which the kernel describes a block device, whose limits QEMU reads.
func limitsOf(path string) string {
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil || info.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(info.Rdev), unix.Minor(info.Rdev))
}
