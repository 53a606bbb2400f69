// Package guest builds the disks that tests and the development node boot: real, small guests made
// from Debian packages of the machine's own apt sources.
//
// It owns the guests' content, the disks' layout and their place in a cache. Nothing is installed
// on the machine. Wrapping a disk in an image is package images' matter; running it is the
// caller's.
//
// Tiny is a guest of Debian's cloud kernel and busybox that is up within a few seconds under
// emulation; that kernel has no driver for SATA, so TinyWithSATA has another. Debian is a
// debootstrapped Debian with systemd, cloud-init and the guest agent. All have no secrets and no
// password on the serial console: they are for tests.
package guest
