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

// Profile returns the path, without a leading slash, of an administrator's lines in AppArmor's profile of
// libvirt's daemon.
func Profile(daemon string) string { return "etc/apparmor.d/local/usr.sbin." + daemon }

// Rule returns the line of AppArmor's profile that permits libvirt's daemon to execute a program.
func Rule(program string) string { return program + " PUx," }

// permitted returns an error if AppArmor keeps libvirtd from executing a program. Debian's profile has
// the folders of the system's own programs, and a file for an administrator's lines.
func permitted(root fs.FS, program string) error {
	if slices.Contains([]string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}, filepath.Dir(program)) {
		return nil
	}
	active, err := fs.ReadFile(root, "sys/kernel/security/apparmor/profiles")
	if err != nil {
		return nil //nolint:nilerr // there is no AppArmor
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:/usr/sbin/)?(libvirtd|virtqemud) \(enforce\)$`).FindAllSubmatch(active, -1) {
		file := Profile(string(m[1]))
		lines, err := fs.ReadFile(root, file)
		if err != nil || !strings.Contains(string(lines), program) {
			return fmt.Errorf("AppArmor keeps %s from executing %s: add the line %q to /%s, and reload AppArmor",
				m[1], program, Rule(program), file)
		}
	}
	return nil
}
