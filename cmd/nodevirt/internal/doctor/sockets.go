package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodevirt/nodevirt/shim/config"
)

// checkReadOnlySocket looks at who can ask libvirtd about all VMs. Its sockets for reading are open to
// each user unless its configuration says otherwise.
func checkReadOnlySocket(_ context.Context, c config.Config) Finding {
	sockets, err := filepath.Glob(filepath.Join(c.Libvirt.Run, "*-sock-ro"))
	if err != nil {
		return warn("set libvirt.run in the shim's config", "%v", err)
	}
	var open []string
	for _, path := range sockets {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o006 != 0 {
			open = append(open, path)
		}
	}
	if len(open) > 0 {
		return warn("run nodevirt node install; or set SocketMode=0600 in a drop-in of the unit of each socket, or unix_sock_ro_perms = \"0600\" in "+
			"libvirtd.conf if systemd does not open the sockets; then restart libvirtd",
			"each user, so also a VM that takes over its QEMU, can list all VMs at %s", strings.Join(open, ", "))
	}
	return ok("no other user can ask libvirtd about VMs")
}
