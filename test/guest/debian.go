package guest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest/cache"
	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// build.sh makes the root file system, into which the files under root are copied.
//
//go:embed all:debian
var debianFiles embed.FS

// debianRecipe changes when the way changes in which the same inputs are put together.
const debianRecipe = "1"

const debianRelease = "bookworm"

const debianCmdline = "root=" + rootPartition + " ro console=ttyS0 net.ifnames=0 panic=1 quiet " +
	"systemd.show_status=true tsc=reliable no_timer_check mitigations=off i8042.noaux i8042.nokbd " +
	"random.trust_cpu=on cryptomgr.notests"

// debianInputs are packages whose new versions are worth a new build.
var debianInputs = []string{
	"linux-image-cloud-amd64", "cloud-init", "qemu-guest-agent", "systemd", "netplan.io", "openssh-server",
}

// Debian returns the path of a qcow2 disk with Debian 12, systemd, cloud-init, netplan, the guest
// agent and an SSH server, and builds it where the cache has none of today's packages, which takes
// some minutes, root, and a mirror. The file is read-only to the caller, as Tiny's.
//
// The guest needs 256 MiB of memory, and virtio for its disk. cloud-init reads NoCloud and
// ConfigDrive seeds; without one it stays off, and the network comes up by DHCP. A root shell
// without a password is on the serial console.
func Debian(ctx context.Context, o Options) (path string, err error) {
	sources, err := deb.Sources(ctx, debianRelease)
	if err != nil {
		return "", err
	}
	found, err := deb.Resolve(ctx, debianInputs...)
	if err != nil {
		return "", err
	}
	key := []string{debianRecipe, debianCmdline, fmt.Sprint(sources)}
	for _, p := range found {
		key = append(key, p.Key())
	}
	err = walkFiles(debianFiles, "debian", func(name string, data []byte) error {
		key = append(key, name, string(data))
		return nil
	})
	if err != nil {
		return "", err
	}
	dir, err := cache.Dir(ctx, o.CacheDir(), "debian", cache.Key(key...), func(tmp string) error {
		return buildDebian(ctx, o, sources, tmp)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// buildDebian makes disk.qcow2 in the folder dir.
func buildDebian(ctx context.Context, o Options, sources []deb.Source, dir string) (err error) {
	o.step("guest: build Debian %s from %s, which takes some minutes", debianRelease, sources[0].URI)
	work := filepath.Join(dir, "work")
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	root, err := debianRoot(ctx, o, sources, work)
	if err != nil {
		return err
	}
	kernel, err := only(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil {
		return err
	}
	initrd, err := only(filepath.Join(root, "boot", "initrd.img-*"))
	if err != nil {
		return err
	}
	config, err := debianFiles.ReadFile("debian/syslinux.cfg")
	if err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	o.step("guest: make the Debian disk")
	return makeDisk(ctx, layout{
		fatSize: 63 * mebibyte,
		config:  string(config) + " APPEND " + debianCmdline + "\n",
		kernel:  kernel, initrd: initrd,
		root: root, rootSize: 2048 * mebibyte,
	}, filepath.Join(dir, "disk.qcow2"), "-c", "-o", "compression_type=zstd")
}

// debianRoot makes the root file system in a folder under work.
func debianRoot(ctx context.Context, o Options, sources []deb.Source, work string) (string, error) {
	root, files := filepath.Join(work, "root"), filepath.Join(work, "files")
	packages := filepath.Join(o.Packages(), "debian")
	for _, dir := range []string{root, files, packages} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("make a folder: %w", err)
		}
	}
	if err := os.CopyFS(files, debianFiles); err != nil {
		return "", fmt.Errorf("copy the guest's files: %w", err)
	}
	list := filepath.Join(work, "sources.list")
	if err := os.WriteFile(list, []byte(deb.SourcesList(sources)), 0o644); err != nil {
		return "", fmt.Errorf("write apt's sources: %w", err)
	}
	script := filepath.Join(files, "debian", "build.sh")
	cmd := deb.Command(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", script,
		root, sources[0].URI, debianRelease, list, packages, filepath.Join(files, "debian", "root"))
	if _, err := deb.Run(cmd); err != nil {
		return "", fmt.Errorf("make the root file system: %w", err)
	}
	return root, nil
}

// only is the path of the one file that matches.
func only(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("one file like %s expected, found %s", pattern, strings.Join(found, " "))
	}
	return found[0], nil
}
