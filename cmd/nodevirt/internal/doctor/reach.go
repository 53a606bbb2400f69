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
		err = landlock.Check(confiner(filepath.Dir(self), packaged))
	}
	switch {
	case err == nil:
		return ok("Landlock limits QEMU to its VM's files")
	case c.VM.Landlock == config.LandlockRequire:
		return fail(remedy, "the shim does not start: %v", err)
	}
	return warn(remedy, risk+"%v", err)
}

// packaged is where the package nodevirt-node has the shim's programs. The package nodevirt has this one
// in /usr/bin.
const packaged = "/usr/libexec/nodevirt"

// confiner returns the path of the program that limits QEMU: in the first of the folders that has it.
func confiner(dirs ...string) string {
	for _, dir := range dirs {
		if path := filepath.Join(dir, landlock.Name); exists(path) {
			return path
		}
	}
	return filepath.Join(dirs[0], landlock.Name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
