package landlock

import "path/filepath"

// nodeRules returns the rules for what every QEMU uses: the program, its libraries and firmware, devices,
// and what the kernel says about itself and about the processor. None of it is another VM's.
func nodeRules(qemu string) []rule {
	prefix := filepath.Dir(filepath.Dir(qemu)) // an administrator's QEMU has its libraries and data there
	all := []rule{
		{path: qemu, rights: execute},
		{path: "/dev/kvm", rights: read | write | control, optional: true},
		{path: "/dev/null", rights: read | write, optional: true},
	}
	// The pattern is valid.
	for _, pattern := range []string{"/lib/ld-*", "/lib64/ld-*"} {
		linkers, _ := filepath.Glob(pattern)
		for _, path := range linkers {
			all = append(all, rule{path: path, rights: execute, optional: true})
		}
	}
	for _, path := range []string{
		prefix + "/lib", prefix + "/lib64", prefix + "/share/qemu",
		"/lib", "/lib64", "/usr/lib", "/usr/lib64",
		"/usr/share/qemu", "/usr/share/seabios", "/usr/share/seavgabios", "/usr/share/ipxe",
		"/usr/share/zoneinfo", "/etc/localtime",
		"/etc/ld.so.cache", "/etc/ssl/openssl.cnf", "/etc/crypto-policies",
		"/dev/random", "/dev/urandom",
		"/proc/self/maps", "/proc/self/status", "/proc/sys/crypto", // the rest of /proc/self has the node's network and mounts
		"/sys/devices/system/cpu", "/sys/devices/system/node",
		"/sys/kernel/mm/transparent_hugepage", "/sys/module/vhost/parameters",
	} {
		all = append(all, rule{path: path, rights: read, optional: true})
	}
	return all
}
