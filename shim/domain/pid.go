package domain

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pid is the process id of a running domain's QEMU, from the file that
// libvirtd writes. libvirt's API does not tell it.
func (d *Driver) pid(name string) (int, error) {
	path := filepath.Join(d.runDir, "qemu", name+".pid")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("find QEMU of domain %s: %w", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("find QEMU of domain %s: %s holds %q, no process id", name, path, text)
	}
	return pid, nil
}
