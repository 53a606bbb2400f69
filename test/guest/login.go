package guest

import (
	"context"
	"embed"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// The files by which a guest with a login differs from Tiny.
//
//go:embed login
var loginFiles embed.FS

// sshPackages hold OpenSSH's server, dmidecode, and the libraries that it needs beside the guest agent's.
var sshPackages = []string{
	"dmidecode", "openssh-server", "openssh-client", "libaudit1", "libcap-ng0", "libcap2", "libcom-err2", "libcrypt1", "libgcrypt20",
	"libgpg-error0", "libgssapi-krb5-2", "libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0", "liblz4-1", "liblzma5",
	"libnsl2", "libpam0g", "libselinux1", "libssl3", "libsystemd0", "libtirpc3", "libwrap0", "libzstd1", "zlib1g",
}

// ipPackages hold the ip of iproute2, which shows the state of a link, unlike busybox's, and its libraries.
var ipPackages = []string{"iproute2", "libbpf1", "libbsd0", "libelf1", "libmd0", "libmnl0"}

// Flavour is a distribution whose console a guest with a login imitates.
type Flavour string

// The flavours that KubeVirt's tests log in to.
const (
	Alpine Flavour = "alpine" // as root, without a password
	Cirros Flavour = "cirros" // as cirros, with the password gocubsgo
	Fedora Flavour = "fedora" // as fedora, with the password fedora
)

// TinyWithLogin returns the path of a disk as Tiny's, whose guest asks for a login on its console, has
// Debian's bash, asks for an IPv6 address, and prompts as a distribution does. It needs 112 MiB of memory;
// one with the agent has OpenSSH's server, too, and needs 192 MiB. It serves no pages, unlike Tiny. UEFI firmware boots
// Fedora's with the agent, too, with 384 MiB; that guest has tpm2-tools and stress-ng.
func TinyWithLogin(ctx context.Context, o Options, flavour Flavour, agent bool) (string, error) {
	dir, err := withLogin(ctx, o, flavour, agent)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// KernelWithLogin returns the kernel and the initial RAM disk of such a guest without the agent: they need no disk.
func KernelWithLogin(ctx context.Context, o Options, flavour Flavour) (Kernel, error) {
	dir, err := withLogin(ctx, o, flavour, false)
	if err != nil {
		return Kernel{}, err
	}
	return Kernel{Image: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initrd")}, nil
}

func withLogin(ctx context.Context, o Options, flavour Flavour, agent bool) (dir string, err error) {
	name := string(flavour)
	loginPackages := []string{"bash", "libtinfo6", "isc-dhcp-client"}
	v := tinyVariant{
		name: "tiny-" + name, kernel: cloud,
		packages: slices.Concat(loginPackages, []string{"libc6"}), programs: []string{"bash", "dhclient"},
	}
	if agent {
		v.name += "-agent"
		v.modules = agentModules
		v.packages = slices.Concat(loginPackages, agentPackages, sshPackages, ipPackages)
		v.programs = append(v.programs, agentProgram, "dmidecode", "sshd", "ssh-keygen", "ip")
	}
	if agent && flavour == Fedora {
		v.modules, v.asked = append(slices.Clone(v.modules), "efivarfs"), []string{"dummy"}
		if v.onDisk, err = signedLoaders(ctx, o); err != nil {
			return "", err
		}
		found, err := tools(ctx, o, v)
		if err != nil {
			return "", err
		}
		maps.Copy(v.onDisk, found)
		for _, name := range slices.Concat([]string{"stress-ng"}, tpmPrograms) {
			v.files = append(v.files, entry{name: "bin/" + name, mode: typeLink | 0o777, data: []byte("tool")})
		}
	}
	host := name
	if flavour == Alpine {
		host = "localhost"
	}
	if !agent && flavour != Fedora { // the cloud's kernel knows no watchdog, no USB and no SATA, and has ext4 built in
		v.kernel, v.modules = fullKernel, slices.Concat([]string{"watchdog", "i6300esb"}, inputModules, sataModules,
			[]string{"usb-storage", "crc32c_generic", "crc16", "mbcache", "jbd2", "ext4"})
	}
	passwd := "root:x:0:0:root:/root:/bin/sh\n" + "sshd:x:74:74:sshd:/var/empty:/bin/false\n"
	if flavour != Alpine {
		passwd += name + ":x:0:0:" + name + ":/home/" + name + ":/bin/sh\n"
		v.files = append(v.files, entry{name: "home/" + name, mode: typeDir | 0o755})
	}
	for _, dir := range []string{"etc/init.d", "etc/network", "etc/sysconfig", "usr", "var/log"} {
		v.files = append(v.files, entry{name: dir, mode: typeDir | 0o755})
	}
	v.files = append(v.files, entry{name: "usr/bin", mode: typeLink | 0o777, data: []byte("../bin")})
	title := strings.ToUpper(name[:1]) + name[1:]
	for path, text := range map[string]string{
		"etc/flavour":      "FLAVOUR=" + name + "\n",
		"etc/hostname":     host + "\n",
		"etc/os-release":   "ID=" + name + "\nNAME=" + title + "\nVERSION_ID=1\nPRETTY_NAME=" + title + "\n",
		"etc/group":        "root:x:0:\n" + name + ":x:0:\n",
		"etc/passwd":       passwd,
		"var/log/messages": "",
	} {
		v.files = append(v.files, fileEntry(path, []byte(text)))
	}
	err = walkFiles(loginFiles, "login", func(name string, data []byte) error {
		v.files = append(v.files, fileEntry(name, data))
		return nil
	})
	if err != nil {
		return "", err
	}
	slices.SortFunc(v.files, func(a, b entry) int { return strings.Compare(a.name, b.name) }) // the key's order
	return tiny(ctx, o, v)
}

// Netcat is the guests' nc, a script for a busybox.
func Netcat() ([]byte, error) { return loginFiles.ReadFile("login/bin/nc") }
