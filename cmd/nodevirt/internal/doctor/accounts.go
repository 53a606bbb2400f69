package doctor

import (
	"context"
	"os/user"
	"strings"

	"github.com/nodevirt/nodevirt/shim/config"
)

// defaultAccounts are the names of which libvirt is built to look one up when its QEMU driver starts,
// as a user and as a group, whatever qemu.conf says: that of Debian, Ubuntu and Arch, and that of
// Fedora and SUSE.
var defaultAccounts = [...]string{"libvirt-qemu", "qemu"}

// kvmGroup is the group that deploy/libvirt/qemu.conf names.
const kvmGroup = "kvm"

// accounts looks up users and groups of the node.
type accounts struct {
	user  func(string) (*user.User, error)
	group func(string) (*user.Group, error)
}

// checkAccounts looks for the users and groups without which libvirtd's QEMU driver does not start. A
// libvirtd that answers has found them: an account that was removed since prevents its next start.
func checkAccounts(_ context.Context, c config.Config) Finding {
	missing := accounts{user.Lookup, user.LookupGroup}.missing()
	if len(missing) == 0 {
		return ok("libvirt's own user and the group %s exist", kvmGroup)
	}
	const remedy = "install libvirt-daemon-system (Debian) or libvirt-daemon-driver-qemu (Fedora), which creates them, or: " +
		"groupadd --system kvm; useradd --system --user-group libvirt-qemu"
	if _, err := ask(c.Libvirt.URI); err == nil {
		return warn(remedy, "libvirtd runs, but may not start again: it looks up %s when it starts", strings.Join(missing, " and "))
	}
	return fail(remedy, "libvirtd looks up %s when it starts, which do not exist", strings.Join(missing, " and "))
}

// missing names what the node does not have.
func (a accounts) missing() []string {
	var all []string
	if _, err := a.group(kvmGroup); err != nil {
		all = append(all, "group "+kvmGroup)
	}
	for _, name := range defaultAccounts {
		_, noUser := a.user(name)
		_, noGroup := a.group(name)
		if noUser == nil && noGroup == nil {
			return all
		}
	}
	return append(all, "user and group "+defaultAccounts[0])
}
