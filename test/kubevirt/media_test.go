//go:build kubevirt

package kubevirt

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nodevirt/nodevirt/shim/iso"
)

// The bytes before an ISO 9660 file system, which hold a disk's boot code and partition table, and those before a guest's first partition.
const (
	systemArea = 32 << 10
	beforeBoot = 1 << 20
)

// alsoCD returns a copy in a folder of a guest's disk that a CD-ROM drive reads as a CD with some files in its root
// folder, as Alpine's images for CDs and disks.
func alsoCD(ctx context.Context, folder, disk string, files int) (string, error) {
	dir, err := os.MkdirTemp(folder, "media-")
	if err != nil {
		return "", err
	}
	cd, copied := filepath.Join(dir, "cd.iso"), filepath.Join(dir, "disk.qcow2")
	err = iso.Write(ctx, cd, "MEDIA", func(f *iso.Files) error {
		for n := range files {
			if err := f.Add(fmt.Sprintf("file%02d", n), 0o644, strings.NewReader("file\n")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(cd)
	if err != nil {
		return "", err
	}
	if len(content) > beforeBoot {
		return "", fmt.Errorf("a CD of %d bytes does not fit before the disk's first partition", len(content))
	}
	if err := os.WriteFile(cd, content[systemArea:], 0o600); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"qemu-img", "convert", "-O", "qcow2", disk, copied},
		{"qemu-io", "-f", "qcow2", "-c", fmt.Sprintf("write -s %s %d %d", cd, systemArea, len(content)-systemArea), copied},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%q: %w: %s", args, err, out)
		}
	}
	return copied, nil
}
