// Package domain turns a virtual machine into a libvirt domain and drives it.
//
// It owns two things. [XML] is a pure translation from a [Machine] (a VM spec
// and what earlier steps made: overlays, taps, sockets) to libvirt's domain
// XML. [Driver] is the adapter to libvirtd: it keeps a connection, defines,
// starts, stops and removes domains, tells their states and passes on their
// life cycle events.
//
// It leaves to others: which VMs there should be and what a domain's end means
// to a container (the VM manager), cgroups, the making of disks and taps, and
// the configuration and life of libvirtd itself. Package accel beside it finds
// out whether KVM works.
//
// # What libvirtd's qemu.conf must say
//
//	stdio_handler = "file"      # QEMU itself writes the console log
//	cgroup_controllers = []     # the pod's cgroup is not libvirt's business
//	dynamic_ownership = 0       # no file changes its owner
//	remember_owner = 0
//	security_driver = "none"    # no MAC labels on descriptors that we pass
//	seccomp_sandbox = 1         # refuse a QEMU that can't be confined
//
// The user that qemu.conf names (libvirt-qemu by default, which must exist)
// must be able to open /dev/kvm, or there must be no /dev/kvm in libvirtd's
// sight. Otherwise libvirtd distrusts what it remembers of QEMU's abilities and
// asks again with every call, for seconds.
//
// In libvirtd.conf, max_workers (20 by default) bounds how many calls libvirtd
// works on: raise it, so that a few domains that don't answer can't hold up the
// others.
package domain
