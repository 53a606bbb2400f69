package doctor

import (
	"context"
	"os/exec"
	"strings"

	"github.com/nodevirt/nodevirt/shim/config"
)

// checkShutdown looks for the service that has guests shut down before the node. Debian enables it, other distributions
// do not.
func checkShutdown(ctx context.Context, _ config.Config) Finding {
	if !isDir("/run/systemd/system") {
		return ok("the node has no systemd: shut guests down before the node")
	}
	// It fails for each state but active.
	out, _ := exec.CommandContext(ctx, "systemctl", "is-active", guestsService).Output()
	return guestsShutDown(strings.TrimSpace(string(out)))
}

const guestsService = "libvirt-guests.service"

func guestsShutDown(state string) Finding {
	if state != "active" {
		return warn("systemctl enable --now "+guestsService+"; do not stop it while VMs run, as that shuts them down",
			"%s is %s: a reboot of the node powers guests off", guestsService, state)
	}
	return ok("guests shut down before the node")
}
