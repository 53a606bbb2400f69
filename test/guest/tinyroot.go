package guest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Modules of Debian's cloud kernel, in the order of their dependencies. The early ones stand
// between the guest and its address; the late ones load while it waits for DHCP.
var (
	earlyModules = []string{
		"virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
		"failover", "net_failover", "virtio_net", "virtio_blk",
	}
	lateModules = []string{
		"button", "evdev", "virtio_console", "virtio_balloon", "virtio-rng", "pvpanic", "pvpanic-mmio",
		"cdrom", "isofs", "fat", "vfat", "nls_cp437", "nls_ascii",
		"scsi_common", "scsi_mod", "sd_mod", "sr_mod", "virtio_scsi",
	}
	// agentModules are late ones of guests with an agent: for a file system in a file, and for what QEMU's firmware
	// device gives to the guest.
	agentModules = []string{"loop", "qemu_fw_cfg"}
	// inputModules are late ones of Debian's full kernel, for input devices on virtio and USB.
	inputModules = []string{"virtio_input", "usb-common", "usbcore", "xhci-hcd", "xhci-pci", "hid", "hid-generic", "usbhid"}
	// virtiofsModules are late ones of guests that mount folders of the node.
	virtiofsModules = []string{"fuse", "virtiofs"}
	// sataModules are late ones of Debian's full kernel, which has what sd_mod needs in modules. The
	// controller's comes last: once it is loaded its disks and CDs are there.
	sataModules = []string{
		"crct10dif_common", "crct10dif_generic", "crc-t10dif", "crc64", "crc64_rocksoft_generic", "crc64-rocksoft", "t10-pi",
		"sd_mod", "libata", "libahci", "ahci",
	}
	// usbModules are late ones of Debian's full kernel, after [sataModules], for disks on USB.
	usbModules = []string{"usb-common", "usbcore", "xhci-hcd", "xhci-pci", "usb-storage"}
)

// tinyRoot is the content of Tiny's initial RAM disk, which is its root file system.
func tinyRoot(v tinyVariant, k kernelFiles, bb busyboxFiles) ([]entry, error) {
	root := []entry{}
	for _, dir := range []string{
		"bin", "data", "dev", "disk", "etc", "etc/acpi", "etc/acpi/PWRF", "etc/nodevirt", "home", "lib", "lib/modules", "mem", "mnt", "proc",
		"root", "run", "sbin", "seed", "sys", "tmp", "var", "www", "www/cgi-bin",
	} {
		root = append(root, entry{name: dir, mode: typeDir | 0o755})
	}
	root = append(root,
		entry{name: "bin/busybox", mode: typeFile | 0o755, data: bb.binary},
		entry{name: "init", mode: typeLink | 0o777, data: []byte("bin/busybox")})
	for _, a := range bb.applets {
		if a != "busybox" {
			root = append(root, entry{name: "bin/" + a, mode: typeLink | 0o777, data: []byte("busybox")})
		}
	}
	modules, err := moduleEntries(v, k)
	if err != nil {
		return nil, err
	}
	root = append(root, modules...)
	err = walkFiles(tinyFiles, "tiny", func(name string, data []byte) error {
		if path.Dir(name) == "." { // not for the guest's root
			return nil
		}
		root = append(root, fileEntry(name, data))
		return nil
	})
	replaced := func(e entry) bool {
		return slices.ContainsFunc(v.files, func(f entry) bool { return f.name == e.name })
	}
	return append(slices.DeleteFunc(root, replaced), v.files...), err
}

// fileEntry is a file of the guest's. Embedding loses its own permissions: a script can be executed.
func fileEntry(name string, data []byte) entry {
	mode := uint32(typeFile | 0o644)
	if bytes.HasPrefix(data, []byte("#!")) {
		mode = typeFile | 0o755
	}
	return entry{name: name, mode: mode, data: data}
}

// programEntries are programs and their libraries where the guest's scripts and its loader look for them. A program
// whose name in /bin is that of one of the guest's own files, a script that runs it, lies in /lib.
func programEntries(p ProgramFiles, files []entry) []entry {
	entries := []entry{{name: loaderDir, mode: typeDir | 0o755}}
	for _, name := range slices.Sorted(maps.Keys(p.Programs)) {
		dir := "bin"
		if slices.ContainsFunc(files, func(f entry) bool { return f.name == "bin/"+name }) {
			dir = "lib"
		}
		entries = append(entries, entry{name: path.Join(dir, name), mode: typeFile | 0o755, data: p.Programs[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(p.Libraries)) {
		dir := "lib"
		if name == loader {
			dir = loaderDir
		}
		entries = append(entries, entry{name: path.Join(dir, name), mode: typeFile | 0o755, data: p.Libraries[name]})
	}
	return entries
}

func moduleEntries(v tinyVariant, k kernelFiles) ([]entry, error) {
	var found []entry
	for _, list := range []struct {
		name    string
		modules []string
	}{{"early", earlyModules}, {"late", v.late()}, {"asked", v.asked}} {
		for _, m := range list.modules {
			data, ok := k.modules[m]
			if !ok {
				return nil, fmt.Errorf("the kernel has no module %s", m)
			}
			found = append(found, entry{name: "lib/modules/" + m + ".ko", mode: typeFile | 0o644, data: unsigned(data)})
		}
		lines := strings.Join(list.modules, "\n") + "\n"
		found = append(found, entry{name: "lib/modules/" + list.name, mode: typeFile | 0o644, data: []byte(lines)})
	}
	return found, nil
}

// unsigned is a module without its signature, which the kernel would take time to verify, and
// doesn't insist on. The file's end is: signature, struct module_signature with the signature's
// length as its last field, big-endian, and the marker; see the kernel's scripts/sign-file.c.
func unsigned(module []byte) []byte {
	const marker, info = "~Module signature appended~\n", 12
	body, signed := bytes.CutSuffix(module, []byte(marker))
	if !signed || len(body) < info {
		return module
	}
	length := uint64(binary.BigEndian.Uint32(body[len(body)-4:])) + info
	if length > uint64(len(body)) {
		return module
	}
	return body[:uint64(len(body))-length]
}
