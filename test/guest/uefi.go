package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// uefiSize holds a kernel, in bytes.
const uefiSize = 32 * mebibyte

// UEFIDisk makes a raw disk in dir, and returns its path. UEFI firmware starts the program on it, such
// as a kernel.
func UEFIDisk(ctx context.Context, dir, program string) (path string, err error) {
	path = filepath.Join(dir, "uefi.img")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return "", fmt.Errorf("make the UEFI disk: %w", err)
	}
	if err := os.Truncate(path, uefiSize); err != nil {
		return "", fmt.Errorf("make the UEFI disk: %w", err)
	}
	for _, args := range [][]string{
		{"mkfs.vfat", "--invariant", "-F", "16", "-n", "NODEVIRT", path},
		{"mmd", "-i", path, "::EFI", "::EFI/BOOT"},
		{"mcopy", "-i", path, program, "::EFI/BOOT/BOOTX64.EFI"},
	} {
		cmd := deb.Command(ctx, args[0], args[1:]...)
		cmd.Env = append(cmd.Env, "MTOOLS_SKIP_CHECK=1")
		if _, err := deb.Run(cmd); err != nil {
			return "", fmt.Errorf("make the UEFI disk: %w", err)
		}
	}
	return path, nil
}
