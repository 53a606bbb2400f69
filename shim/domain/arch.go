package domain

import (
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// arches returns libvirt's names of architectures by Go's.
func arches() map[string]string {
	return map[string]string{vmspec.AMD64: "x86_64", vmspec.ARM64: "aarch64"}
}

func archOf(name string) string { return arches()[name] }

// goArch returns Go's name of an architecture; empty for one whose guests no VM has.
func goArch(name string) string {
	for arch, libvirts := range arches() {
		if libvirts == name {
			return arch
		}
	}
	return ""
}

func isARM(desc Description) bool { return desc.Spec.Arch() == vmspec.ARM64 }

// gic returns the interrupt controller of a board of arm64; nil for the node's own.
func gic(a Accelerator) *libvirtxml.DomainFeatureGIC {
	if a == KVM {
		return nil
	}
	return &libvirtxml.DomainFeatureGIC{Version: "3"}
}
