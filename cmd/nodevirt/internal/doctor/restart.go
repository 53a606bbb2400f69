package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/domain"
)

const (
	dropIn = "deploy/systemd/libvirtd.service.d/nodevirt.conf"
	// mendFlag is what the drop-in is known by.
	mendFlag = "-before-libvirtd"
	// birth is more than libvirtd needs until a domain that it starts has a process.
	birth = 30 * time.Second
)

// checkRestart looks whether a libvirtd that was killed in the wrong moment is,
// or would be, the end of a VM's pod.
func checkRestart(_ context.Context, c config.Config) Finding {
	unborn, err := domain.FindUnborn(c.Libvirt.Run)
	if err != nil {
		return warn("make it readable", "%v", err)
	}
	var stuck []string
	for _, u := range unborn {
		if time.Since(u.Since) > birth {
			stuck = append(stuck, u.Name)
		}
	}
	installed, systemd := hasDropIn(), isDir("/run/systemd/system")
	switch {
	case len(stuck) > 0 && systemd && installed:
		return warn("systemctl restart libvirtd: machines run on", "libvirtd can't end %s: it was killed in the start", strings.Join(stuck, ", "))
	case len(stuck) > 0 && systemd:
		return warn("install "+dropIn+" and restart libvirtd: machines run on",
			"libvirtd can't end %s: it was killed in the start", strings.Join(stuck, ", "))
	case len(stuck) > 0:
		return warn("stop libvirtd, run nodevirt-shim "+mendFlag+", and start it again: machines run on",
			"libvirtd can't end %s: it was killed in the start", strings.Join(stuck, ", "))
	case systemd && !installed:
		return warn("install "+dropIn, "libvirtd's unit does not run nodevirt-shim %s: "+
			"a pod whose VM it starts as it is killed could not be removed", mendFlag)
	}
	return ok("no domain is stuck in its start")
}

// hasDropIn tells whether libvirtd's unit, monolithic or modular, does what ours makes it do.
func hasDropIn() bool {
	for _, dir := range []string{"/etc", "/run", "/usr/lib", "/lib"} {
		files, _ := filepath.Glob(filepath.Join(dir, "systemd/system", "*.service.d", "*.conf"))
		for _, file := range files {
			switch filepath.Base(filepath.Dir(file)) {
			case "libvirtd.service.d", "virtqemud.service.d":
			default:
				continue
			}
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), mendFlag) {
				return true
			}
		}
	}
	return false
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
