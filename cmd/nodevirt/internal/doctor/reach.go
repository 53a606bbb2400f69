package doctor

import (
	"context"

	"github.com/nodevirt/nodevirt/netsetup/reach"
	"github.com/nodevirt/nodevirt/shim/config"
)

// checkReach looks for the nftables table that keeps VMs' processes from the node's network.
func checkReach(ctx context.Context, c config.Config) Finding {
	if err := reach.Check(ctx, c.VM.UIDBase, c.VM.UIDBase+c.VM.UIDCount-1); err != nil {
		return warn("start nodevirt-shim, which loads the table, and see its log: journalctl -u nodevirt-shim",
			"a VM that takes over its QEMU could reach the node's network: %v", err)
	}
	return ok("nftables limits VMs' processes to the portals of their disks")
}
