package domain

import (
	"cmp"

	"libvirt.org/go/libvirtxml"
)

// videoMemory is enough for a picture of 2560 × 1600, in KiB.
const videoMemory = 16 << 10

// graphics returns the VNC server of the display, on a socket. Without one, libvirt
// adds no graphics card either.
func graphics(desc Description) []libvirtxml.DomainGraphic {
	if !desc.Spec.Display {
		return nil
	}
	return []libvirtxml.DomainGraphic{{
		VNC: &libvirtxml.DomainGraphicVNC{
			Listeners: []libvirtxml.DomainGraphicListener{{
				Socket: &libvirtxml.DomainGraphicListenerSocket{Socket: desc.DisplaySocket},
			}},
		},
	}}
}

// usualVideo returns the model of a card that has no other.
func usualVideo(desc Description) string {
	if isARM(desc) {
		return virtio
	}
	return "vga"
}

// videos returns the graphics card, by default one for which firmware and every operating
// system have a driver. libvirt adds a PS/2 keyboard and mouse: there is no USB.
func videos(desc Description) []libvirtxml.DomainVideo {
	if !desc.Spec.Display {
		return nil
	}
	model := libvirtxml.DomainVideoModel{Type: cmp.Or(desc.Spec.Video, usualVideo(desc)), Heads: 1, Primary: "yes"}
	if model.Type != "virtio" && model.Type != "ramfb" { // which have the guest's memory
		model.VRam = videoMemory
	}
	return []libvirtxml.DomainVideo{{Model: model}}
}
