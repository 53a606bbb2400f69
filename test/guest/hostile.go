package guest

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// HostileDisk is a file that must not be attached to a machine.
type HostileDisk struct {
	Name string // of the case, without spaces
	Path string
}

// qemuImgDisks are made by qemu-img create with these arguments, the path and the size.
var qemuImgDisks = []struct {
	name string
	size string
	args []string
}{
	{"backing-file", "1M", []string{"-f", "qcow2", "-u", "-b", "/etc/shadow", "-F", "raw"}},
	{"backing-json", "1M", []string{"-f", "qcow2", "-u", "-F", "raw",
		"-b", `json:{"driver":"nbd","server":{"type":"inet","host":"127.0.0.1","port":"10809"}}`}},
	{"data-file", "1M", []string{"-f", "qcow2", "-o", "data_file=DIR/data,data_file_raw=on"}},
	{"encrypted", "1M", []string{"--object", "secret,id=key,data=secret", "-f", "qcow2",
		"-o", "encrypt.format=aes,encrypt.key-secret=key"}}, // LUKS takes seconds to make
	{"qcow1", "1M", []string{"-f", "qcow"}},
	{"qed", "1M", []string{"-f", "qed"}},
	{"vdi", "1M", []string{"-f", "vdi"}},
	{"vhdx", "1M", []string{"-f", "vhdx"}},
	{"vmdk", "1M", []string{"-f", "vmdk"}},
	{"vpc", "1M", []string{"-f", "vpc"}},
	{"too-large", "1P", []string{"-f", "qcow2", "-o", "cluster_size=2M"}},
}

// HostileDisks makes, in a folder, one disk for each way in which an image's author may try to
// reach something of the host's, or bring a file that is no disk.
func HostileDisks(ctx context.Context, dir string) ([]HostileDisk, error) {
	var disks []HostileDisk
	for _, d := range qemuImgDisks {
		path := filepath.Join(dir, d.name)
		args := []string{"create", "-q"}
		for _, a := range d.args {
			if a == "data_file=DIR/data,data_file_raw=on" {
				a = "data_file=" + filepath.Join(dir, "data") + ",data_file_raw=on"
			}
			args = append(args, a)
		}
		if err := create(ctx, append(args, path, d.size)); err != nil {
			return nil, fmt.Errorf("make hostile disk %s: %w", d.name, err)
		}
		disks = append(disks, HostileDisk{Name: d.name, Path: path})
	}
	for _, d := range craftedDisks() {
		path := filepath.Join(dir, d.name)
		if err := os.WriteFile(path, d.content, 0o644); err != nil {
			return nil, fmt.Errorf("make hostile disk: %w", err)
		}
		disks = append(disks, HostileDisk{Name: d.name, Path: path})
	}
	return disks, nil
}

// create runs qemu-img. For LUKS it measures how fast the machine is, and gives up where the clock
// of its CPU usage did not tick meanwhile, which the next try may see.
func create(ctx context.Context, args []string) error {
	const tries = 20
	var err error
	for range tries {
		_, err = deb.Run(deb.Command(ctx, "qemu-img", args...))
		if err == nil || !strings.Contains(err.Error(), "Unable to get accurate CPU usage") {
			return err
		}
	}
	return err
}

// craftedDisk is a disk that no tool makes.
type craftedDisk struct {
	name    string
	content []byte
}

func craftedDisks() []craftedDisk {
	return []craftedDisk{
		{"empty", nil},
		{"one-byte", []byte{0}},
		{"odd-size", make([]byte, 1<<20+1)},
		{"luks", append([]byte("LUKS\xba\xbe\x00\x01"), make([]byte, 1<<20-8)...)},
		{"truncated", qcow2Header(nil)[:40]},
		{"header-only", qcow2Header(nil)},
		{"unknown-version", qcow2Header(func(h []byte) { h[7] = 9 })},
		{"unknown-feature", qcow2Header(func(h []byte) { h[72] = 0x80 })},
		{"large-cluster", qcow2Header(func(h []byte) { h[23] = 63 })},
		{"large-table", qcow2Header(func(h []byte) { binary.BigEndian.PutUint32(h[36:], 1<<31) })},
		{"table-outside", qcow2Header(func(h []byte) { binary.BigEndian.PutUint64(h[40:], 1<<60) })},
	}
}

// qcow2Header is the header of a version 3 image of 1 MiB, changed by a function, and none of the
// tables that it names. See qemu's docs/interop/qcow2.txt.
func qcow2Header(change func(header []byte)) []byte {
	h := make([]byte, 104)
	copy(h, "QFI\xfb")
	binary.BigEndian.PutUint32(h[4:], 3)         // version
	binary.BigEndian.PutUint32(h[20:], 16)       // bits of a cluster
	binary.BigEndian.PutUint64(h[24:], 1<<20)    // virtual size
	binary.BigEndian.PutUint32(h[36:], 1)        // entries of the L1 table
	binary.BigEndian.PutUint64(h[40:], 0x30_000) // where it is
	binary.BigEndian.PutUint64(h[48:], 0x10_000) // where the refcount table is
	binary.BigEndian.PutUint32(h[56:], 1)        // its clusters
	binary.BigEndian.PutUint32(h[96:], 4)        // refcount order
	binary.BigEndian.PutUint32(h[100:], 104)     // header length
	if change != nil {
		change(h)
	}
	return h
}
