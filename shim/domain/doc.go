// Package domain translates a VM into a libvirt domain and controls it.
//
// It owns two things. [XML] is a pure translation from a [Description], which is a
// VM spec with the overlays, taps and sockets of earlier steps, to libvirt's
// domain XML. [Driver] is the adapter to libvirtd: it keeps a connection,
// defines, starts, stops and removes domains, and reports their states and
// life cycle events.
//
// It leaves to others which VMs should exist and what the end of a domain means
// for a container (package vm), cgroups, the creation of disks and taps, and
// the configuration and the service of libvirtd. Package accel tests whether
// KVM works.
//
// # What libvirtd's qemu.conf must say
//
//	stdio_handler = "file"      # QEMU itself writes the console log
//	cgroup_controllers = []     # libvirt must not use the pod's cgroup
//	dynamic_ownership = 0       # no file changes its owner
//	remember_owner = 0
//	security_driver = "none"    # no MAC labels on descriptors that we pass
//	seccomp_sandbox = 1         # don't start a QEMU without seccomp
//
// The user that qemu.conf names (libvirt-qemu by default, which must exist)
// must be able to open /dev/kvm, or libvirtd must not see a /dev/kvm. Otherwise
// libvirtd discards its cache of QEMU's capabilities and probes QEMU again in
// every call, which takes seconds.
//
// In libvirtd.conf, max_workers (20 by default) limits how many calls libvirtd
// handles at the same time. Raise it, so that a few domains that don't answer
// can't block the others.
package domain
