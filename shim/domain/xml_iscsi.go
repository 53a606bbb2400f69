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
	// Target and LUN identify the disk. Initiator is QEMU's own name.
	Target    string
	LUN       int
	Initiator string
	// User is the user for CHAP; Secret is the UUID of the [Secret] with the password.
	User, Secret string
}

func (i ISCSI) source() *libvirtxml.DomainDiskSourceNetwork {
	return &libvirtxml.DomainDiskSourceNetwork{
		Protocol: "iscsi",
		Name:     i.Target + "/" + strconv.Itoa(i.LUN),
		Hosts: []libvirtxml.DomainDiskSourceHost{
			{Name: i.Portal.Addr().String(), Port: strconv.Itoa(int(i.Portal.Port()))},
		},
		Initiator: &libvirtxml.DomainDiskSourceNetworkInitiator{
			IQN: &libvirtxml.DomainDiskSourceNetworkIQN{Name: i.Initiator},
		},
		Auth: &libvirtxml.DomainDiskAuth{
			Username: i.User,
			Secret:   &libvirtxml.DomainDiskSecret{Type: "iscsi", UUID: i.Secret},
		},
	}
}
