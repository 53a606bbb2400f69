package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
)

// noteDisks notes the disks among a layer's files, by the names of what they would be expanded to.
func (p *pristine) noteDisks(image digest.Digest, dir string) error {
	for _, pattern := range []string{"disk", "disk/*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
				continue
			}
			inImage, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			name, err := expand.Key{Image: image.String(), Path: "/" + inImage}.BaseName()
			if err != nil {
				return err
			}
			p.disks[name] = path
		}
	}
	return nil
}

// pristineBases compares the bases of clones with their images' disks. One whose image has gone is
// about to go too.
func (n *Node) pristineBases(ctx context.Context, disks map[string]string) error {
	for name, disk := range disks {
		base := filepath.Join(n.o.path("nodevirt", "expanded"), name)
		if !exists(base) {
			continue
		}
		format, err := formatOf(disk)
		if err != nil {
			return err
		}
		if _, err := n.Output(ctx, "qemu-img", "compare", "-f", "raw", "-F", format, base, disk); err != nil {
			return fmt.Errorf("the base %s of disk %s: %w", base, disk, err)
		}
	}
	return nil
}

func formatOf(disk string) (string, error) {
	f, err := os.Open(disk)
	if err != nil {
		return "", err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err == nil && string(magic) == "QFI\xfb" {
		return "qcow2", nil
	}
	return "raw", nil
}
