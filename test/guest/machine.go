package guest

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

// The files that are copied into the root file system, and the names of packages and units.
//
//go:embed all:machine
var machineFiles embed.FS

// payloadSize is the size of the file system of a payload.
const payloadSize = 1024 * mebibyte

// machine returns the path of a raw disk with Debian 12 as it is on a node: systemd, libvirt, QEMU and
// the other packages that nodevirt-node depends on, and the guest agent, but neither nodevirt, nor
// containerd, nor Kubernetes. It builds the disk where the cache has none of today's packages, which
// takes some minutes, root, and a mirror.
func machine(ctx context.Context, o Options) (string, error) {
	b := bookworm{name: "machine", files: machineFiles, rootSize: 8192 * mebibyte, inputs: []string{
		"linux-image-cloud-amd64", "libvirt-daemon-system", "qemu-system-x86", "qemu-guest-agent", "systemd", "apparmor",
	}}
	dir, err := b.build(ctx, o, func(l layout, dir string) error {
		return makeRawDisk(ctx, l, filepath.Join(dir, "disk.raw"))
	})
	return filepath.Join(dir, "disk.raw"), err
}

// MachineRoot fills the folder root with the root file system of machine, by a loop device.
func MachineRoot(ctx context.Context, o Options, root string) error {
	raw, err := machine(ctx, o)
	if err != nil {
		return err
	}
	const script = `mount -o "loop,ro,offset=$1" "$2" /mnt && cp -a /mnt/. "$3" && umount /mnt`
	offset := fmt.Sprint(layout{fatSize: bookwormFAT}.rootStart())
	return runAll(ctx, []command{{args: []string{"unshare", "--mount", "sh", "-c", script, "sh", offset, raw, root}}})
}

// Machine makes a qcow2 disk of machine at path. The files of the folder payload are under
// /opt/payload.
//
// The guest needs virtio for its disk, and has its address from DHCP. A root shell without a password
// is on the serial console.
func Machine(ctx context.Context, o Options, payload, path string) error {
	from, err := machine(ctx, o)
	if err != nil {
		return err
	}
	return withPayload(ctx, from, payload, path)
}

// withPayload makes a qcow2 disk at path of the raw disk from, and of a further file system, labelled payload,
// with the files of a folder.
func withPayload(ctx context.Context, from, payload, path string) error {
	raw := path + ".raw"
	defer func() { _ = os.Remove(raw) }()
	if err := runAll(ctx, []command{{args: []string{"cp", "--sparse=always", "--reflink=auto", from, raw}}}); err != nil {
		return err
	}
	info, err := os.Stat(raw)
	if err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	start := info.Size()
	if err := os.Truncate(raw, start+payloadSize); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	if err := runAll(ctx, []command{
		{[]string{"sfdisk", "--quiet", "--append", raw}, fmt.Sprintf("start=%d, size=%d, type=83\n", start/sectorSize, payloadSize/sectorSize)},
		{args: []string{"mke2fs", "-q", "-t", "ext4", "-L", "payload", "-d", payload,
			"-E", fmt.Sprintf("offset=%d", start), raw, fmt.Sprintf("%dk", payloadSize/1024)}},
	}); err != nil {
		return err
	}
	return convert(ctx, raw, path)
}
