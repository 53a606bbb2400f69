package domain

import (
	"net/netip"
	"strconv"

	"libvirt.org/go/libvirtxml"
)

// ISCSI is a disk that QEMU uses as an iSCSI initiator, from libvirtd's network
// namespace.
type ISCSI struct {
	Portal netip.AddrPort
	// Target and LUN identify the disk. Initiator is QEMU's own name; empty for QEMU's
	// default.
	Target    string
	LUN       int
	Initiator string
	// User is the user for CHAP; Secret is the UUID of the [Secret] with the password.
	// Both are empty for a target without CHAP.
	User, Secret string
}

func (i ISCSI) source() *libvirtxml.DomainDiskSourceNetwork {
	source := &libvirtxml.DomainDiskSourceNetwork{
		Protocol: "iscsi",
		Name:     i.Target + "/" + strconv.Itoa(i.LUN),
		Hosts: []libvirtxml.DomainDiskSourceHost{
			{Name: i.Portal.Addr().String(), Port: strconv.Itoa(int(i.Portal.Port()))},
		},
		Auth: diskAuth(i.User, SecretISCSI, i.Secret),
	}
	if i.Initiator != "" {
		source.Initiator = &libvirtxml.DomainDiskSourceNetworkInitiator{
			IQN: &libvirtxml.DomainDiskSourceNetworkIQN{Name: i.Initiator},
		}
	}
	return source
}

// diskAuth returns the credentials of a disk; nil for none.
func diskAuth(user string, kind SecretKind, secret string) *libvirtxml.DomainDiskAuth {
	if secret == "" {
		return nil
	}
	return &libvirtxml.DomainDiskAuth{Username: user, Secret: &libvirtxml.DomainDiskSecret{Type: string(kind), UUID: secret}}
}
