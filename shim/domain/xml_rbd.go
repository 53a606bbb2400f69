package domain

import (
	"net/netip"
	"strconv"

	"libvirt.org/go/libvirtxml"
)

// RBD is a disk that QEMU uses as a client of Ceph, from libvirtd's network namespace.
type RBD struct {
	Monitors    []netip.AddrPort
	Pool, Image string
	// User is Ceph's, without "client."; Secret is the UUID of the [Secret] with the
	// user's key.
	User, Secret string
	// Config is the path of a configuration that QEMU reads.
	Config string
}

func (r RBD) source() *libvirtxml.DomainDiskSourceNetwork {
	source := &libvirtxml.DomainDiskSourceNetwork{
		Protocol: "rbd",
		Name:     r.Pool + "/" + r.Image,
		Config:   &libvirtxml.DomainDiskSourceNetworkConfig{File: r.Config},
		Auth:     diskAuth(r.User, SecretCeph, r.Secret),
	}
	for _, m := range r.Monitors {
		source.Hosts = append(source.Hosts, libvirtxml.DomainDiskSourceHost{Name: m.Addr().String(), Port: strconv.Itoa(int(m.Port()))})
	}
	return source
}
