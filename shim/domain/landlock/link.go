package landlock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Name is the name of the program that calls [Enter], beside nodevirt-shim, and of the link to it.
const Name = "nodevirt-qemu"

// target is the name of the link to QEMU beside it.
const target = "qemu"

// Link makes, below a folder that all users can enter, the links to the program that confines QEMU, and to
// QEMU. It returns the path that libvirt starts. libvirt caches what the program at a path can do, so the
// path changes when either program does. Links of earlier programs stay, for VMs that run.
func Link(dir, program, qemu string) (string, error) {
	if err := Check(program); err != nil {
		return "", err
	}
	return links(dir, program, qemu)
}

func links(dir, program, qemu string) (string, error) {
	sum := sha256.New()
	for _, path := range []string{program, qemu} {
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("link to QEMU: %w", err)
		}
		fmt.Fprintln(sum, path, info.Size(), info.ModTime().UnixNano())
	}
	folder := filepath.Join(dir, hex.EncodeToString(sum.Sum(nil)[:8]))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("link to QEMU: %w", err)
	}
	link := filepath.Join(folder, Name)
	for path, to := range map[string]string{filepath.Join(folder, target): qemu, link: program} {
		if err := renameio.Symlink(to, path); err != nil {
			return "", fmt.Errorf("link to QEMU: %w", err)
		}
	}
	return link, nil
}
