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

// bookwormScript makes the root file system.
//
//go:embed bookworm/build.sh
var bookwormScript string

// bookwormSyslinux is syslinux.cfg but for the kernel's command line.
//
//go:embed bookworm/syslinux.cfg
var bookwormSyslinux string

// bookwormRecipe changes when the way changes in which the same inputs are put together.
const bookwormRecipe = "2"

const bookwormRelease = "bookworm"

// bookwormFAT is the size of the file system that the guest boots from.
const bookwormFAT = 63 * mebibyte

const bookwormCmdline = "root=" + rootPartition + " ro console=ttyS0 net.ifnames=0 panic=1 quiet " +
	"systemd.show_status=true tsc=reliable no_timer_check mitigations=off i8042.noaux i8042.nokbd " +
	"random.trust_cpu=on cryptomgr.notests"

// bookworm is a guest with Debian 12.
type bookworm struct {
	name     string   // in the cache, and the guest's host name
	files    embed.FS // a folder of the name, which bookwormScript reads
	inputs   []string // the packages whose new versions are worth a new build
	rootSize int64    // bytes, a multiple of mebibytes
}

// build returns the guest's folder in the cache. If there is none of today's packages, it makes the
// root file system, and calls disk with the layout of a disk and the folder that it fills.
func (b bookworm) build(ctx context.Context, o Options, disk func(l layout, dir string) error) (string, error) {
	sources, err := deb.Sources(ctx, bookwormRelease)
	if err != nil {
		return "", err
	}
	found, err := deb.Resolve(ctx, o.Packages(), b.inputs...)
	if err != nil {
		return "", err
	}
	key := []string{bookwormRecipe, bookwormScript, bookwormSyslinux, bookwormCmdline, fmt.Sprint(sources, b.rootSize)}
	for _, p := range found {
		key = append(key, p.Key())
	}
	err = walkFiles(b.files, b.name, func(name string, data []byte) error {
		key = append(key, name, string(data))
		return nil
	})
	if err != nil {
		return "", err
	}
	return cache.Dir(ctx, o.CacheDir(), b.name, cache.Key(key...), func(tmp string) (err error) {
		o.step("guest: build Debian %s (%s) from %s, which takes some minutes", bookwormRelease, b.name, sources[0].URI)
		work := filepath.Join(tmp, "work")
		defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
		root, err := b.root(ctx, o, sources, work)
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
		o.step("guest: make the disk of %s", b.name)
		return disk(layout{
			fatSize: bookwormFAT,
			config:  bookwormSyslinux + " APPEND " + bookwormCmdline + "\n",
			kernel:  kernel, initrd: initrd,
			root: root, rootSize: b.rootSize,
		}, tmp)
	})
}

// root makes the root file system in a folder under work.
func (b bookworm) root(ctx context.Context, o Options, sources []deb.Source, work string) (string, error) {
	root, files := filepath.Join(work, "root"), filepath.Join(work, "files")
	packages := filepath.Join(o.Packages(), "debian")
	for _, dir := range []string{root, files, packages} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("make a folder: %w", err)
		}
	}
	if err := os.CopyFS(files, b.files); err != nil {
		return "", fmt.Errorf("copy the guest's files: %w", err)
	}
	list, script := filepath.Join(work, "sources.list"), filepath.Join(work, "build.sh")
	if err := os.WriteFile(list, []byte(deb.SourcesList(sources)), 0o644); err != nil {
		return "", fmt.Errorf("write apt's sources: %w", err)
	}
	if err := os.WriteFile(script, []byte(bookwormScript), 0o755); err != nil {
		return "", fmt.Errorf("write the script: %w", err)
	}
	cmd := deb.Command(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", script,
		root, sources[0].URI, bookwormRelease, list, packages, filepath.Join(files, b.name))
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
