package guest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// A disk has an MBR, and from 1 MiB on a FAT file system that syslinux boots from. A root file
// system may follow. All of it is made without a loop device.
const (
	mebibyte   = 1 << 20
	sectorSize = 512
	fatStart   = mebibyte
	mbrCode    = 440 // bytes before the disk's id and the partition table
)

// layout is what a disk is made of. Paths are the host's.
type layout struct {
	fatSize        int64  // bytes, a multiple of mebibytes
	config         string // text of syslinux.cfg
	kernel, initrd string
	files          map[string]string // beside them, by their names there
	root           string            // folder with the content of an ext4 file system; none if empty
	rootSize       int64             // bytes, a multiple of mebibytes
}

// rootPartition is how the kernel finds the root file system; see the kernel's name_to_dev_t.
const rootPartition = "PARTUUID=766d0001-02"

func (l layout) rootStart() int64 { return fatStart + l.fatSize }

// partitions is the input of sfdisk(8).
func (l layout) partitions() string {
	text := fmt.Sprintf("label: dos\nlabel-id: 0x766d0001\nstart=%d, size=%d, type=e, bootable\n",
		fatStart/sectorSize, l.fatSize/sectorSize)
	if l.root != "" {
		text += fmt.Sprintf("start=%d, size=%d, type=83\n", l.rootStart()/sectorSize, l.rootSize/sectorSize)
	}
	return text
}

// command is a command line and its input.
type command struct {
	args  []string
	input string
}

// commands fill the raw disk, which is there with its full size.
func (l layout) commands(raw string) []command {
	fat := fmt.Sprintf("%s@@%d", raw, fatStart)
	list := []command{
		{[]string{"sfdisk", "--quiet", raw}, l.partitions()},
		{[]string{"mkfs.vfat", "--invariant", "-F", "16", "-i", "766d0002", "-n", "NODEVIRT",
			fmt.Sprintf("--offset=%d", fatStart/sectorSize), raw, fmt.Sprint(l.fatSize / 1024)}, ""},
		{[]string{"mcopy", "-i", fat, "-", "::syslinux.cfg"}, l.config},
		{[]string{"mcopy", "-i", fat, l.kernel, "::vmlinuz"}, ""},
		{[]string{"mcopy", "-i", fat, l.initrd, "::initrd"}, ""},
		{[]string{"syslinux", "--install", "--offset", fmt.Sprint(fatStart), raw}, ""},
	}
	for _, folder := range folders(l.files) {
		list = append(list, command{[]string{"mmd", "-i", fat, "::" + folder}, ""})
	}
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		list = append(list, command{[]string{"mcopy", "-i", fat, l.files[name], "::" + name}, ""})
	}
	if l.root != "" {
		list = append(list, command{[]string{"mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", l.root,
			"-E", fmt.Sprintf("offset=%d", l.rootStart()), raw, fmt.Sprintf("%dk", l.rootSize/1024)}, ""})
	}
	return list
}

// folders returns the folders of files by their names, each after the one that it is in.
func folders(files map[string]string) []string {
	all := map[string]bool{}
	for name := range files {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// makeDisk makes a qcow2 disk, by way of a raw one beside it.
func makeDisk(ctx context.Context, l layout, qcow2 string, options ...string) error {
	raw := strings.TrimSuffix(qcow2, filepath.Ext(qcow2)) + ".raw"
	defer func() { _ = os.Remove(raw) }()
	if err := makeRawDisk(ctx, l, raw); err != nil {
		return err
	}
	return convert(ctx, raw, qcow2, options...)
}

// makeRawDisk makes a raw disk, which is sparse.
func makeRawDisk(ctx context.Context, l layout, raw string) error {
	if err := os.WriteFile(raw, nil, 0o644); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	if err := os.Truncate(raw, fatStart+l.fatSize+l.rootSize); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	if err := runAll(ctx, l.commands(raw)); err != nil {
		return err
	}
	if err := writeMBR(raw); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	return nil
}

// convert makes a qcow2 disk of a raw one.
func convert(ctx context.Context, raw, qcow2 string, options ...string) error {
	args := append(append([]string{"convert", "-O", "qcow2"}, options...), raw, qcow2)
	return runAll(ctx, []command{{args: append([]string{"qemu-img"}, args...)}})
}

// runAll runs the commands that make a disk.
func runAll(ctx context.Context, commands []command) error {
	for _, c := range commands {
		cmd := deb.Command(ctx, c.args[0], c.args[1:]...)
		cmd.Stdin = strings.NewReader(c.input)
		cmd.Env = append(cmd.Env, "MTOOLS_SKIP_CHECK=1", "SOURCE_DATE_EPOCH=0", "TZ=UTC")
		if _, err := deb.Run(cmd); err != nil {
			return fmt.Errorf("make the disk: %w", err)
		}
	}
	return nil
}

// writeMBR puts syslinux's boot code before the partition table.
func writeMBR(raw string) error {
	code, err := os.ReadFile("/usr/lib/syslinux/mbr/mbr.bin")
	if err != nil {
		return fmt.Errorf("read the boot code (of package syslinux-common): %w", err)
	}
	f, err := os.OpenFile(raw, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(code[:min(len(code), mbrCode)], 0); err != nil {
		return err
	}
	return f.Close()
}
