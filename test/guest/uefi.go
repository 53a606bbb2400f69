package guest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest/cache"
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

// TinyWithUEFI returns the path of a disk as [TinyWithSATA]'s that UEFI firmware boots too, also with secure boot: it
// has the boot loaders that Microsoft and Debian have signed, and Debian's signed kernel. It needs 384 MiB of memory.
func TinyWithUEFI(ctx context.Context, o Options) (path string, err error) {
	loaders, err := signedLoaders(ctx, o)
	if err != nil {
		return "", err
	}
	dir, err := tiny(ctx, o, tinyVariant{name: "tiny-uefi", kernel: fullKernel, modules: sataModules, onDisk: loaders})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// signedCmdline lets the kernel read its certificates: with secure boot it loads signed modules alone.
var signedCmdline = strings.Replace(Cmdline, ",load_system_certificate_list", "", 1)

// signedLoaders returns the files of Debian's signed boot loaders and the configuration of GRUB, by their names on a
// disk.
func signedLoaders(ctx context.Context, o Options) (map[string]string, error) {
	found, err := deb.Resolve(ctx, o.Packages(), "shim-signed", "grub-efi-amd64-signed")
	if err != nil {
		return nil, err
	}
	config := "linux /vmlinuz " + signedCmdline + "\ninitrd /initrd\nboot\n"
	key := []string{config}
	for _, p := range found {
		key = append(key, p.Key())
	}
	wanted := map[string]string{
		"usr/lib/shim/shimx64.efi.signed":                   "shimx64.efi",
		"usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed": "grubx64.efi",
	}
	dir, err := cache.Dir(ctx, o.CacheDir(), "signed-loaders", cache.Key(key...), func(tmp string) error {
		for _, p := range found {
			file, err := p.Download(ctx, o.Packages())
			if err != nil {
				return err
			}
			err = deb.Read(ctx, file, func(name string, _ *tar.Header, r io.Reader) error {
				to, is := wanted[name]
				if !is {
					return nil
				}
				data, err := io.ReadAll(r)
				return errors.Join(err, os.WriteFile(filepath.Join(tmp, to), data, 0o644))
			})
			if err != nil {
				return err
			}
		}
		for _, name := range wanted {
			if _, err := os.Stat(filepath.Join(tmp, name)); err != nil {
				return fmt.Errorf("the packages of the signed boot loaders hold no %s: %w", name, err)
			}
		}
		return os.WriteFile(filepath.Join(tmp, "grub.cfg"), []byte(config), 0o644)
	})
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"EFI/BOOT/BOOTX64.EFI": filepath.Join(dir, "shimx64.efi"), "EFI/BOOT/grubx64.efi": filepath.Join(dir, "grubx64.efi"),
		"EFI/debian/grub.cfg": filepath.Join(dir, "grub.cfg"),
	}, nil
}
