package landlock

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Check returns an error if libvirt can't start a program in QEMU's place, or if the program can't limit
// QEMU.
func Check(program string) error {
	if _, err := Version(); err != nil {
		return err
	}
	if err := public(program); err != nil {
		return err
	}
	return permitted(os.DirFS("/"), program)
}

// public returns an error unless all users can execute a program.
func public(program string) error {
	path, err := filepath.EvalSymlinks(program)
	if err != nil {
		return fmt.Errorf("find the program that confines QEMU: %w; install it beside nodevirt-shim", err)
	}
	for ; path != "/" && path != "."; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("find the program that confines QEMU: %w", err)
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf("VMs' users cannot execute %s: %s is closed to them; chmod o+x it, or install the program elsewhere", program, path)
		}
	}
	return nil
}

// permitted returns an error if AppArmor keeps libvirtd from executing a program. Debian's profile has
// the folders of the system's own programs, and a file for an administrator's lines.
func permitted(root fs.FS, program string) error {
	const local = "etc/apparmor.d/local/usr.sbin."
	if slices.Contains([]string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}, filepath.Dir(program)) {
		return nil
	}
	active, err := fs.ReadFile(root, "sys/kernel/security/apparmor/profiles")
	if err != nil {
		return nil //nolint:nilerr // there is no AppArmor
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:/usr/sbin/)?(libvirtd|virtqemud) \(enforce\)$`).FindAllSubmatch(active, -1) {
		file := local + string(m[1])
		lines, err := fs.ReadFile(root, file)
		if err != nil || !strings.Contains(string(lines), program) {
			return fmt.Errorf("AppArmor keeps %s from executing %s: add the line %q to /%s, and reload AppArmor",
				m[1], program, program+" PUx,", file)
		}
	}
	return nil
}
