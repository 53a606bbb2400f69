package guest

import (
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest/cache"
	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// The guest's own files: a root file system, and syslinux.cfg.
//
//go:embed tiny
var tinyFiles embed.FS

// tinyRecipe changes when the way changes in which the same inputs are put together.
const tinyRecipe = "3"

// Cmdline is the kernel's command line of Tiny's disk, for those who boot its kernel directly. It
// spends no time on what an emulated machine doesn't need, and restarts the guest after a panic.
const Cmdline = "console=ttyS0 quiet loglevel=1 panic=1 tsc=reliable no_timer_check nokaslr mitigations=off " +
	"noreplace-smp i8042.noaux i8042.nokbd random.trust_cpu=on cryptomgr.notests rcupdate.rcu_expedited=1 " +
	"initcall_blacklist=init_kprobe_trace,load_system_certificate_list"

// Kernel is a kernel to boot without a disk: qemu's -kernel and -initrd. Both files lie in the
// cache and are not the caller's to change.
type Kernel struct {
	Image, Initrd string
}

// Tiny returns the path of a qcow2 disk that boots busybox on Debian's cloud kernel, and builds it
// where the cache has none of today's packages. The file is read-only to the caller: boot it
// through an overlay or qemu's snapshot mode.
//
// The guest needs 80 MiB of memory, and virtio for its disk and network. It takes its address by
// DHCP and its name from a NoCloud seed or from DHCP, answers HTTP on port 80 (the pages are under
// tiny/www), echoes TCP on port 7, and powers off by ACPI. On its serial console is a root shell,
// and a line "nodevirt guest: up host=… ip=… after … s" once it has its address. With the word
// nodevirt.tick on the kernel's command line it writes a line each second.
func Tiny(ctx context.Context, o Options) (path string, err error) {
	dir, err := tiny(ctx, o, plainTiny)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// TinyKernel returns the kernel and the initial RAM disk of Tiny, which hold all of that guest: with
// them it needs no disk.
func TinyKernel(ctx context.Context, o Options) (Kernel, error) {
	dir, err := tiny(ctx, o, plainTiny)
	if err != nil {
		return Kernel{}, err
	}
	return Kernel{Image: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initrd")}, nil
}

// TinyWithAgent returns the path of a disk as Tiny's whose guest also runs Debian's QEMU guest agent,
// and starts it again a second after it has ended. It needs 112 MiB of memory.
func TinyWithAgent(ctx context.Context, o Options) (path string, err error) {
	dir, err := tiny(ctx, o, tinyVariant{name: "tiny-agent", kernel: cloud, modules: agentModules,
		packages: agentPackages, programs: []string{agentProgram}})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// TinyWithSATA returns the path of a disk as Tiny's whose guest sees disks and CDs on SATA too: it has
// Debian's full kernel, since the cloud one has no driver for their controller. It needs 112 MiB of memory.
func TinyWithSATA(ctx context.Context, o Options) (path string, err error) {
	dir, err := tiny(ctx, o, tinyVariant{name: "tiny-sata", kernel: fullKernel, modules: sataModules})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// TinyWithUSB returns the path of a disk as [TinyWithSATA]'s whose guest sees disks on USB too.
func TinyWithUSB(ctx context.Context, o Options) (path string, err error) {
	dir, err := tiny(ctx, o, tinyVariant{name: "tiny-usb", kernel: fullKernel, modules: slices.Concat(sataModules, usbModules)})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// redirectPackages hold the program that passes USB devices on, and the libraries that it needs.
var redirectPackages = []string{
	"usbredirect", "libc6", "libglib2.0-0", "libpcre2-8-0", "libusb-1.0-0", "libusbredirhost1", "libusbredirparser1", "libudev1",
	"libffi8", "zlib1g", "libmount1", "libblkid1", "libselinux1",
}

// TinyWithUSBRedirect returns the path of a disk as [TinyWithUSB]'s whose guest has Debian's usbredirect. It needs
// 192 MiB of memory.
func TinyWithUSBRedirect(ctx context.Context, o Options) (path string, err error) {
	dir, err := tiny(ctx, o, tinyVariant{name: "tiny-usbredirect", kernel: fullKernel, modules: slices.Concat(sataModules, usbModules),
		packages: redirectPackages, programs: []string{"usbredirect"}})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

// TinyWithVirtiofs returns the path of a disk as Tiny's whose guest can mount file systems of type virtiofs.
func TinyWithVirtiofs(ctx context.Context, o Options) (path string, err error) {
	dir, err := tiny(ctx, o, tinyVariant{name: "tiny-virtiofs", kernel: cloud, modules: virtiofsModules})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "disk.qcow2"), nil
}

const (
	cloud      = "linux-image-cloud-amd64"
	fullKernel = "linux-image-amd64"
)

// tinyVariant is what Tiny and its like differ in.
type tinyVariant struct {
	name     string            // in the cache
	kernel   string            // the package that depends on today's kernel
	modules  []string          // late ones, after those that all have
	asked    []string          // modules that the guest's modprobe loads when the kernel asks for them
	packages []string          // of the programs, with their libraries
	programs []string          // of Debian's, such as the guest agent
	files    []entry           // more files, or those that replace some of tiny/
	onDisk   map[string]string // files of the host that lie beside the kernel, by their names there
}

var plainTiny = tinyVariant{name: "tiny", kernel: cloud}

func (v tinyVariant) late() []string { return slices.Concat(lateModules, v.modules) }

// tiny returns the folder with disk.qcow2, vmlinuz and initrd.
func tiny(ctx context.Context, o Options, v tinyVariant) (string, error) {
	kernel, err := todaysKernel(ctx, o, v.kernel)
	if err != nil {
		return "", err
	}
	found, err := deb.Resolve(ctx, o.Packages(), append([]string{kernel, "busybox-static"}, v.packages...)...)
	if err != nil {
		return "", err
	}
	key := []string{tinyRecipe, Cmdline, strings.Join(earlyModules, " "), strings.Join(v.late(), " "), strings.Join(v.asked, " ")}
	for _, p := range found {
		key = append(key, p.Key())
	}
	for _, f := range v.files {
		key = append(key, f.name, string(f.data))
	}
	err = walkFiles(tinyFiles, "tiny", func(name string, data []byte) error {
		key = append(key, name, string(data))
		return nil
	})
	if err != nil {
		return "", err
	}
	content, err := contentOf(v.onDisk)
	if err != nil {
		return "", err
	}
	key = append(key, content...)
	return cache.Dir(ctx, o.CacheDir(), v.name, cache.Key(key...), func(tmp string) error {
		return buildTiny(ctx, o, v, found, tmp)
	})
}

// todaysKernel finds the package with the kernel that a package stands for now.
func todaysKernel(ctx context.Context, o Options, meta string) (string, error) {
	found, err := deb.Resolve(ctx, o.Packages(), meta)
	if err != nil {
		return "", err
	}
	return kernelOf(found[0])
}

// kernelOf returns the name of the package with the kernel that p depends on.
func kernelOf(p deb.Package) (string, error) {
	for _, name := range p.Depends {
		if strings.HasPrefix(name, "linux-image-") {
			return name, nil
		}
	}
	return "", fmt.Errorf("package %s %s depends on no kernel", p.Name, p.Version)
}

// buildTiny takes the packages of the kernel, of busybox and, if there are more, of the programs.
func buildTiny(ctx context.Context, o Options, v tinyVariant, packages []deb.Package, dir string) error {
	kernel, busybox := packages[0], packages[1]
	o.step("guest: download %s and %s", kernel.Name, busybox.Name)
	k, err := readKernel(ctx, o, kernel, slices.Concat(earlyModules, v.late(), v.asked))
	if err != nil {
		return err
	}
	bb, err := readBusybox(ctx, o, busybox)
	if err != nil {
		return err
	}
	o.step("guest: make the tiny disk")
	root, err := tinyRoot(v, k, bb)
	if err != nil {
		return err
	}
	if len(v.programs) > 0 {
		files, err := readPrograms(ctx, o, packages[2:], v.programs...)
		if err != nil {
			return err
		}
		root = append(root, programEntries(files, v.files)...)
	}
	if err := writeInitrd(filepath.Join(dir, "initrd"), root); err != nil {
		return fmt.Errorf("make the initial RAM disk: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vmlinuz"), k.image, 0o644); err != nil {
		return fmt.Errorf("keep the kernel: %w", err)
	}
	config, err := tinyFiles.ReadFile("tiny/syslinux.cfg")
	if err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	return makeDisk(ctx, layout{
		fatSize: fatSizeOf(v), files: v.onDisk,
		config: string(config) + " APPEND " + Cmdline + "\n",
		kernel: filepath.Join(dir, "vmlinuz"), initrd: filepath.Join(dir, "initrd"),
	}, filepath.Join(dir, "disk.qcow2"))
}

// fatSizeOf is the size of the file system that the guest boots from.
func fatSizeOf(v tinyVariant) int64 {
	if len(v.onDisk) > 0 {
		return 255 * mebibyte
	}
	return 63 * mebibyte
}

// writeInitrd writes a compressed archive: it starts no slower than a plain one, and a pull of the
// disk has 2 MB less to move.
func writeInitrd(path string, root []entry) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	return errors.Join(writeCPIO(z, root), z.Close(), f.Close())
}

// walkFiles calls visit for each file under a folder of files, in lexical order, with its name
// relative to the folder.
func walkFiles(files fs.FS, dir string, visit func(name string, data []byte) error) error {
	return fs.WalkDir(files, dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return visit(strings.TrimPrefix(path, dir+"/"), data)
	})
}
