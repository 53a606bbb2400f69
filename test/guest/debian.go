package guest

import (
	"context"
	"embed"
	"path/filepath"
)

// The files that are copied into the root file system, and the names of packages and units.
//
//go:embed all:debian
var debianFiles embed.FS

// Debian returns the path of a qcow2 disk with Debian 12, systemd, cloud-init, netplan, the guest
// agent and an SSH server, and builds it where the cache has none of today's packages, which takes
// some minutes, root, and a mirror. The file is read-only to the caller, as Tiny's.
//
// The guest needs 256 MiB of memory, and virtio for its disk. cloud-init reads NoCloud and
// ConfigDrive seeds; without one it stays off, and the network comes up by DHCP. A root shell
// without a password is on the serial console.
func Debian(ctx context.Context, o Options) (path string, err error) {
	b := bookworm{name: "debian", files: debianFiles, rootSize: 2048 * mebibyte, inputs: []string{
		"linux-image-cloud-amd64", "cloud-init", "qemu-guest-agent", "systemd", "netplan.io", "openssh-server",
	}}
	dir, err := b.build(ctx, o, func(l layout, dir string) error {
		return makeDisk(ctx, l, filepath.Join(dir, "disk.qcow2"), "-c", "-o", "compression_type=zstd")
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}
