package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/test/guest/cache"
	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// CmdlineARM64 is the kernel's command line of TinyARM64.
const CmdlineARM64 = "console=ttyAMA0 quiet loglevel=1 panic=1 cryptomgr.notests"

// armInit is the guest's first program.
const armInit = `#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
echo "nodevirt guest: up on $(/bin/busybox uname -m)" >/dev/console
/bin/busybox sleep 1
exec /bin/busybox poweroff -f
`

// TinyARM64 returns the kernel and the initial RAM disk of a guest of arm64, and builds them where the
// cache has none of today's packages. The guest has neither a disk nor a network: it writes the line
// "nodevirt guest: up on aarch64" to its console, and powers off. It needs 256 MiB of memory.
func TinyARM64(ctx context.Context, o Options) (Kernel, error) {
	const arm = "arm64"
	meta, err := deb.Foreign(ctx, o.CacheDir(), arm, "linux-image-cloud-arm64")
	if err != nil {
		return Kernel{}, err
	}
	name, err := kernelOf(meta[0])
	if err != nil {
		return Kernel{}, err
	}
	found, err := deb.Foreign(ctx, o.CacheDir(), arm, name, "busybox-static")
	if err != nil {
		return Kernel{}, err
	}
	key := cache.Key(tinyRecipe, armInit, found[0].Key(), found[1].Key())
	dir, err := cache.Dir(ctx, o.CacheDir(), "tiny-arm64", key, func(tmp string) error {
		return buildARM64(ctx, o, found, tmp)
	})
	return Kernel{Image: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initrd")}, err
}

// buildARM64 takes the packages of the kernel and of busybox.
func buildARM64(ctx context.Context, o Options, packages []deb.Package, dir string) error {
	o.step("guest: download %s and %s of arm64", packages[0].Name, packages[1].Name)
	kernel, err := readKernel(ctx, o, packages[0], nil)
	if err != nil {
		return err
	}
	busybox, err := busyboxBinary(ctx, o, packages[1])
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "vmlinuz"), kernel.image, 0o644), writeInitrd(filepath.Join(dir, "initrd"), []entry{
		{name: "bin", mode: typeDir | 0o755}, {name: "dev", mode: typeDir | 0o755},
		{name: "bin/busybox", mode: typeFile | 0o755, data: busybox}, fileEntry("init", []byte(armInit)),
	}))
	if err != nil {
		return fmt.Errorf("make the guest of arm64: %w", err)
	}
	return nil
}
