package nodesetup

import (
	"os"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/deploy"
)

// daemon is libvirt's daemon of QEMU, whose unit and config file have its name.
type daemon string

const (
	monolithic daemon = "libvirtd"
	modular    daemon = "virtqemud"
)

// libvirt returns the daemon that the node uses: the modular one if systemd opens its socket.
func libvirt(root *os.Root) daemon {
	if _, err := root.Lstat("etc/systemd/system/sockets.target.wants/" + string(modular) + ".socket"); err == nil {
		return modular
	}
	return monolithic
}

// units returns the daemon's units: the sockets, then the service.
func (d daemon) units() []string {
	n := string(d)
	return []string{n + ".socket", n + "-ro.socket", n + "-admin.socket", n + ".service"}
}

// files returns the new text of libvirt's files, by path. programs is the folder of the shim.
func (d daemon) files(root *os.Root, programs string) ([]edit, error) {
	var all []edit
	for _, f := range []struct{ path, ours, why string }{
		{"etc/libvirt/qemu.conf", deploy.QEMUConf, "QEMU as the shim needs it"},
		{"etc/libvirt/" + string(d) + ".conf", deploy.LibvirtdConf, "more calls at once; only root reads VMs' definitions"},
	} {
		text, err := read(root, f.path)
		if err != nil {
			return nil, err
		}
		all = append(all, edit{f.path, merge(text, f.ours), f.why})
	}
	unit := "systemd/system/" + string(d) + ".service.d/nodevirt.conf"
	if packaged, err := read(root, "usr/lib/"+unit); err != nil || packaged == "" {
		if err != nil {
			return nil, err
		}
		all = append(all, edit{"etc/" + unit, placed(deploy.LibvirtdDropIn, programs), "removes what a killed " + string(d) + " leaves"})
	}
	all = append(all, edit{
		"etc/systemd/system/" + string(d) + "-ro.socket.d/nodevirt.conf", deploy.SocketDropIn, "only root reads VMs' definitions",
	})
	guests, err := libvirtGuests(root)
	if err != nil {
		return nil, err
	}
	profile, err := d.appArmor(root, programs)
	return slices.Concat(all, guests, profile), err
}

// libvirtGuests returns the edit for the service that shuts guests down before the node; none if the node
// has no such service. The service reads its file when it stops.
func libvirtGuests(root *os.Root) ([]edit, error) {
	unit, err := read(root, "usr/lib/systemd/system/libvirt-guests.service")
	if err != nil || unit == "" {
		return nil, err
	}
	const file = "etc/default/libvirt-guests"
	if !strings.Contains(unit, "/"+file) {
		return nil, nil // another distribution's, which does not enable it
	}
	text, err := read(root, file)
	return []edit{{file, merge(text, deploy.LibvirtGuests), "VMs that do not shut down do not delay a reboot"}}, err
}

// placed returns a unit that runs the shim from another folder.
func placed(unit, programs string) string {
	return strings.ReplaceAll(unit, "/usr/local/bin/", programs+"/")
}

const (
	begin = "# Added by \"nodevirt node install\". \"nodevirt node uninstall\" restores the file.\n"
	// off marks a line that no longer applies.
	off = "# nodevirt: "
)

// merge returns a config file of libvirt with our settings at its end, in place of those of another
// version. The file's own settings of the same name become comments, since libvirt's parser does not
// say which one wins.
func merge(text, ours string) string {
	if own, _, merged := strings.Cut(text, "\n"+begin); merged {
		text = uncommented(own)
	}
	names := map[string]bool{}
	for line := range strings.Lines(ours) {
		if name, ok := setting(line); ok {
			names[name] = true
		}
	}
	var b strings.Builder
	open := false // in a list of several lines
	for line := range strings.Lines(text) {
		name, ok := setting(line)
		switch {
		case open:
			open = !strings.Contains(line, "]")
			b.WriteString(off)
		case ok && names[name]:
			open = strings.Contains(line, "[") && !strings.Contains(line, "]")
			b.WriteString(off)
		}
		b.WriteString(line)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		b.WriteString("\n")
	}
	return b.String() + "\n" + begin + ours
}

// uncommented returns a file's text with the settings that merge made comments.
func uncommented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimPrefix(line, off))
	}
	return b.String()
}

// setting returns the name that a line sets.
func setting(line string) (name string, ok bool) {
	name, _, ok = strings.Cut(line, "=")
	name = strings.TrimSpace(name)
	return name, ok && !strings.HasPrefix(name, "#")
}
