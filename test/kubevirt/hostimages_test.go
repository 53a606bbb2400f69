//go:build kubevirt

package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/specs"
)

// hostImages is a folder of each node, of which specs make volumes: KubeVirt's clusters have disks there.
const hostImages = "/tmp/hostImages"

// mountHostImages gives each node the folder: for each of the suite's processes a disk of Alpine, and one that root
// alone may read, and a separate file system. The nodes alone see what is in it.
func mountHostImages(ctx context.Context, c *cluster.Cluster) error {
	disk, err := guest.TinyWithLogin(ctx, c.Control().GuestOptions(), guest.Alpine, false)
	if err != nil {
		return err
	}
	raw := filepath.Join(filepath.Dir(c.Kubeconfig()), "alpine.img")
	if out, err := exec.CommandContext(ctx, "qemu-img", "convert", "-O", "raw", disk, raw).CombinedOutput(); err != nil {
		return fmt.Errorf("make a raw disk: %w: %s", err, out)
	}
	procs, err := strconv.Atoi(specs.Setting(procsVariable, usualProcs))
	if err != nil {
		return fmt.Errorf("%s: %w", procsVariable, err)
	}
	separate := filepath.Join(hostImages, "mount_hp")
	commands := [][]string{
		{"mount", "-t", "tmpfs", "images", hostImages},
		{"mkdir", separate},
		{"mount", "-t", "tmpfs", "-o", "size=4g", "separate", separate},
		{"mkdir", "-m", "0777", filepath.Join(separate, "test")}, // CDI writes there as no root
	}
	for process := 1; process <= procs; process++ {
		for name, mode := range map[string]string{"alpine": "0666", "alpine-nopriv": "0640"} {
			folder := filepath.Join(hostImages, fmt.Sprint(name, process))
			file := filepath.Join(folder, "disk.img")
			commands = append(commands, []string{"mkdir", folder}, []string{"cp", "--sparse=always", raw, file}, []string{"chmod", mode, file})
		}
	}
	if err := os.Mkdir(hostImages, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, n := range c.Nodes() {
		for _, command := range commands {
			if out, err := n.Command(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%q: %w: %s", command, err, out)
			}
		}
	}
	return nil
}
