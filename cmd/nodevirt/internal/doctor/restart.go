package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/domain"
)

const (
	dropIn = "libvirtd.service.d/nodevirt.conf from nodevirt's sources"
	// mendFlag identifies the drop-in.
	mendFlag = "-before-libvirtd"
	// birth is more than libvirtd takes to start the process of a domain.
	birth = 30 * time.Second
)

// checkRestart looks for domains that libvirtd cannot end because it was killed
// while it started them, and for the drop-in that repairs them.
func checkRestart(_ context.Context, c config.Config) Finding {
	unborn, err := domain.FindUnborn(c.Libvirt.Run)
	if err != nil {
		return warn("make libvirtd's run folder readable", "%v", err)
	}
	if err := domain.CheckRoom(c.Libvirt.Run); errors.Is(err, domain.ErrNoRoom) {
		return warn("make room there before libvirtd starts; if it runs, do not restart it", "%v", err)
	}
	var names []string
	for _, u := range unborn {
		if time.Since(u.Since).Abs() > birth { // a time in the future is from before the clock was set back
			names = append(names, u.Name)
		}
	}
	installed, systemd := hasDropIn(), isDir("/run/systemd/system")
	stuck := fmt.Sprintf("libvirtd cannot end %s: it was killed while it started them", strings.Join(names, ", "))
	switch {
	case len(names) > 0 && systemd && installed:
		return warn("systemctl restart libvirtd; running VMs are not affected", "%s", stuck)
	case len(names) > 0 && systemd:
		return warn("run nodevirt node install, or install "+dropIn+", then systemctl daemon-reload and restart libvirtd; running VMs are not affected", "%s", stuck)
	case len(names) > 0:
		return warn("stop libvirtd, run nodevirt-shim "+mendFlag+", and start libvirtd; running VMs are not affected", "%s", stuck)
	case systemd && !installed:
		return warn("run nodevirt node install, or install "+dropIn+", then systemctl daemon-reload", "libvirtd's unit does not run nodevirt-shim %s: "+
			"if libvirtd is killed while it starts a VM, the VM's pod cannot be removed", mendFlag)
	}
	return ok("no domain is stuck in its start")
}

// hasDropIn reports whether a drop-in of libvirtd's unit, monolithic or modular, runs the repair.
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
