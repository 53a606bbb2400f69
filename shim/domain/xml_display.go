package domain

import "libvirt.org/go/libvirtxml"

// videoMemory is what a picture of up to 2560 × 1600 needs, in KiB.
const videoMemory = 16 << 10

// graphics serves a machine's display by VNC on a socket. Without one, libvirt
// gives the machine no graphics card either.
func graphics(m Machine) []libvirtxml.DomainGraphic {
	if !m.Spec.Display {
		return nil
	}
	return []libvirtxml.DomainGraphic{{
		VNC: &libvirtxml.DomainGraphicVNC{
			Listeners: []libvirtxml.DomainGraphicListener{{
				Socket: &libvirtxml.DomainGraphicListenerSocket{Socket: m.DisplaySocket},
			}},
		},
	}}
}

// videos is a card that firmware and every system have a driver for. Keyboard
// and mouse are PS/2's, which libvirt adds: there is no USB.
func videos(m Machine) []libvirtxml.DomainVideo {
	if !m.Spec.Display {
		return nil
	}
	return []libvirtxml.DomainVideo{{
		Model: libvirtxml.DomainVideoModel{Type: "vga", VRam: videoMemory, Heads: 1, Primary: "yes"},
	}}
}
