package doctor

import (
	"context"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/netsetup/reach"
	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/domain/landlock"
)

// checkReach looks for the nftables table that keeps VMs' processes from the node's network.
func checkReach(ctx context.Context, c config.Config) Finding {
	if err := reach.Check(ctx, c.VM.UIDBase, c.VM.UIDBase+c.VM.UIDCount-1); err != nil {
		return warn("start nodevirt-shim, which loads the table, and see its log: journalctl -u nodevirt-shim",
			"a VM that takes over its QEMU could reach the node's network: %v", err)
	}
	return ok("nftables limits VMs' processes to the portals of their disks")
}

// checkLandlock looks for what limits QEMU to its VM's files.
func checkLandlock(_ context.Context, c config.Config) Finding {
	const (
		risk   = "a VM that takes over its QEMU could read all files that each user of the node can read: "
		remedy = "remove the cause; a kernel needs CONFIG_SECURITY_LANDLOCK, and landlock in its parameter lsm="
	)
	if c.VM.Landlock == config.LandlockOff {
		return warn("set vm.landlock to auto in the shim's config", risk+"vm.landlock is off")
	}
	self, err := os.Executable()
	if err == nil {
		err = landlock.Check(filepath.Join(filepath.Dir(self), landlock.Name))
	}
	switch {
	case err == nil:
		return ok("Landlock limits QEMU to its VM's files")
	case c.VM.Landlock == config.LandlockRequire:
		return fail(remedy, "the shim does not start: %v", err)
	}
	return warn(remedy, risk+"%v", err)
}
