package doctor

import (
	"context"
	"fmt"
	"os"

	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/config"
)

// minLibvirt is the first version that takes disks as descriptors, as libvirt numbers it.
const minLibvirt = 9_000_000

// versions are the version numbers of libvirt and of QEMU.
type versions struct{ libvirt, qemu uint32 }

// ask connects to libvirtd. libvirt's calls have no context: the caller must bound it.
func ask(uri string) (v versions, err error) {
	conn, err := libvirt.NewConnect(uri)
	if err != nil {
		return v, err
	}
	defer conn.Close()
	if v.libvirt, err = conn.GetLibVersion(); err != nil {
		return v, err
	}
	v.qemu, err = conn.GetVersion()
	return v, err
}

func checkLibvirtd(_ context.Context, c config.Config) Finding {
	v, err := ask(c.Libvirt.URI)
	if err != nil {
		return fail("install libvirt-daemon-system (Debian) or libvirt-daemon-kvm (Fedora) and start it: "+
			"systemctl enable --now libvirtd; or set libvirt.uri in the shim's config", "%s: %s", c.Libvirt.URI, libvirtText(err))
	}
	if v.libvirt < minLibvirt {
		return fail("install libvirt 9.0 or later, which takes disks as open descriptors", "libvirt %s", dotted(v.libvirt))
	}
	if info, err := os.Stat(c.Libvirt.Run); err != nil || !info.IsDir() {
		return fail("set libvirt.run in the shim's config to libvirtd's run folder",
			"libvirt %s, but its run folder %s, where it keeps QEMU's process ids, does not exist", dotted(v.libvirt), c.Libvirt.Run)
	}
	return ok("libvirt %s with QEMU %s at %s", dotted(v.libvirt), dotted(v.qemu), c.Libvirt.URI)
}

// libvirtText returns an error of libvirt without its numbers.
func libvirtText(err error) string {
	if e, isLibvirt := err.(libvirt.Error); isLibvirt { //nolint:errorlint // the binding returns it bare
		return e.Message
	}
	return err.Error()
}

// dotted formats a version that is one number: 9000000 is 9.0.0.
func dotted(v uint32) string {
	return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1000%1000, v%1000)
}
