package guest

import (
	"context"
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
	{"over-a-terabyte", "1025G", []string{"-f", "qcow2"}},
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
