package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/shim/forks"
)

// setting is a line of a unit.
type setting struct{ section, key, value string }

func unit(t *testing.T, path string) (all []setting) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("systemd", path))
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "", line[0] == '#':
		case line[0] == '[':
			section = line
		case !ok:
			t.Errorf("%s: line %q", path, line)
		default:
			all = append(all, setting{section, key, value})
		}
	}
	return all
}

// TestUnitsAreConfined holds what daemons do without. See systemd.exec(5).
func TestUnitsAreConfined(t *testing.T) {
	for path, want := range map[string][]string{
		"nodevirt-tgtd.service": {
			"CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_SYS_PTRACE",
			"NoNewPrivileges=yes", "ProtectSystem=strict", "ReadWritePaths=-/var/lib/nodevirt", "ProtectHome=yes",
			"PrivateTmp=yes", "PrivateDevices=yes", "ProtectHostname=yes", "ProtectClock=yes", "ProtectKernelTunables=yes",
			"ProtectKernelModules=yes", "ProtectKernelLogs=yes", "ProtectControlGroups=yes", "RestrictNamespaces=yes",
			"RestrictRealtime=yes", "RestrictSUIDSGID=yes", "LockPersonality=yes", "MemoryDenyWriteExecute=yes", "UMask=0077",
			"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK", "SystemCallArchitectures=native",
			"SystemCallFilter=@system-service",
			"SystemCallFilter=~@chown @keyring @memlock @setuid @debug process_vm_readv process_vm_writev",
			"SystemCallErrorNumber=EPERM", "RuntimeDirectoryMode=0700",
			// Stopped by SIGKILL, it would be a failed unit, and the machine degraded.
			"KillSignal=SIGKILL", "SuccessExitStatus=SIGKILL",
		},
		"nodevirt-shim.service": {
			"NoNewPrivileges=yes", "ProtectSystem=full", "PrivateMounts=yes", "ProtectKernelLogs=yes", "ProtectKernelModules=yes",
			"LockPersonality=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes", "SystemCallArchitectures=native",
			"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET",
			"CapabilityBoundingSet=~CAP_AUDIT_CONTROL CAP_AUDIT_READ CAP_AUDIT_WRITE CAP_BLOCK_SUSPEND CAP_LEASE CAP_MAC_ADMIN",
			"CapabilityBoundingSet=~CAP_MAC_OVERRIDE CAP_SYS_BOOT CAP_SYS_PACCT CAP_SYS_RAWIO CAP_SYS_TIME CAP_SYS_TTY_CONFIG",
			"CapabilityBoundingSet=~CAP_SYSLOG CAP_WAKE_ALARM",
		},
	} {
		settings := unit(t, path)
		for _, line := range want {
			key, value, _ := strings.Cut(line, "=")
			if !slices.Contains(settings, setting{"[Service]", key, value}) {
				t.Errorf("%s: %s is missing", path, line)
			}
		}
		for _, s := range settings {
			// systemd ignores a limit of starts in another section.
			if strings.HasPrefix(s.key, "StartLimit") && s.section != "[Unit]" {
				t.Errorf("%s: %s is in section %s", path, s.key, s.section)
			}
			// A second allow list would add to the first.
			if s.key == "CapabilityBoundingSet" && !strings.HasPrefix(s.value, "~") && !slices.Contains(want, s.key+"="+s.value) {
				t.Errorf("%s: more capabilities: %s", path, s.value)
			}
		}
	}
}

// TestShimsMemory: the kernel slows the shim down before its memory is the VMs', and not while it is within its bounds, on a
// node of 4 GiB.
func TestShimsMemory(t *testing.T) {
	const node = 4 << 30
	var share int64
	for _, s := range unit(t, "nodevirt-shim.service") {
		if s.section == "[Service]" && s.key == "MemoryHigh" {
			percent, err := strconv.Atoi(strings.TrimSuffix(s.value, "%"))
			if err != nil || !strings.HasSuffix(s.value, "%") {
				t.Fatalf("MemoryHigh=%s is no share of the node", s.value)
			}
			share = node / 100 * int64(percent)
		}
	}
	const heap = 128 << 20 // with 100 VMs, by docs/sizing.md
	within := int64(node/forks.Share + bounds.Inputs + bounds.Outlines + bounds.Screenshots*bounds.Screenshot + heap)
	if share < within || share > node/2 {
		t.Errorf("MemoryHigh is %d bytes of %d; the bounds are %d", share, node, within)
	}
}

// TestReadOnlySocketIsRoots: others could read the definitions of all VMs.
func TestReadOnlySocketIsRoots(t *testing.T) {
	if s := unit(t, "libvirtd-ro.socket.d/nodevirt.conf"); !slices.Contains(s, setting{"[Socket]", "SocketMode", "0600"}) {
		t.Errorf("the settings are %v", s)
	}
}

// TestLibvirtdWaitsForRoom: a libvirtd that starts while /run is full kills guests. So its start needs the
// program's consent, but not the program.
func TestLibvirtdWaitsForRoom(t *testing.T) {
	want := setting{"[Service]", "ExecStartPre", "/bin/sh -c '[ ! -x /usr/local/bin/nodevirt-shim ] || " +
		"exec /usr/local/bin/nodevirt-shim -config /etc/nodevirt/nodevirt-shim.toml -before-libvirtd'"}
	if all := unit(t, "libvirtd.service.d/nodevirt.conf"); !slices.Contains(all, want) {
		t.Errorf("%s=%s is missing in %v", want.key, want.value, all)
	}
}

// TestVMsEnterLibvirtsFolder: on Debian it is closed to others, so no VM would start without KVM.
func TestVMsEnterLibvirtsFolder(t *testing.T) {
	want := setting{"[Service]", "ExecStartPre", "-/usr/bin/chmod o+x /var/lib/libvirt/qemu"}
	if !slices.Contains(unit(t, "libvirtd.service.d/nodevirt.conf"), want) {
		t.Errorf("%s=%s is missing", want.key, want.value)
	}
}

// TestShutdownOrder: units stop in the reverse of this order. So guests power off while all that their disks need runs,
// and no process of a VM ends before.
func TestShutdownOrder(t *testing.T) {
	for path, want := range map[string][]string{
		"nodevirt-.scope.d/nodevirt.conf": {"libvirt-guests.service", "nodevirt-shim.service"},
		"nodevirt-tgtd.service":           {"libvirt-guests.service", "nodevirt-shim.service"},
		"nodevirt-shim.service":           {"kubelet.service", "libvirt-guests.service"},
	} {
		var before []string
		for _, s := range unit(t, path) {
			if s.section == "[Unit]" && s.key == "Before" {
				before = append(before, strings.Fields(s.value)...)
			}
		}
		slices.Sort(before)
		if !slices.Equal(before, want) {
			t.Errorf("%s is before %q, want %q", path, before, want)
		}
	}
	var after []string
	for _, s := range unit(t, "nodevirt-shim.service") {
		if s.section == "[Unit]" && s.key == "After" {
			after = append(after, strings.Fields(s.value)...)
		}
	}
	for _, want := range []string{"containerd.service", "libvirtd.service"} {
		if !slices.Contains(after, want) {
			t.Errorf("the shim is after %q, without %s", after, want)
		}
	}
}
