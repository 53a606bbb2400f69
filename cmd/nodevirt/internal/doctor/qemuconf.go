package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/deploy"
	"github.com/nodevirt/nodevirt/shim/config"
)

const qemuConfPath = "/etc/libvirt/qemu.conf"

// virtlogd is the socket of the daemon that writes consoles unless stdio_handler is "file".
const virtlogd = "/run/libvirt/virtlogd-sock"

// checkQEMUConf compares the configuration of libvirt's QEMU driver with deploy/libvirt/qemu.conf.
// libvirtd does not report what it has read, so the check reads the file.
func checkQEMUConf(_ context.Context, c config.Config) Finding {
	if strings.Contains(c.Libvirt.URI, "+ssh:") || strings.Contains(c.Libvirt.URI, "+tcp:") || strings.Contains(c.Libvirt.URI, "+tls:") {
		return warn("run libvirtd on this node", "cannot read the settings of %s, which is on another node", c.Libvirt.URI)
	}
	text, err := os.ReadFile(qemuConfPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return warn("make the file readable", "%v", err)
	}
	_, err = os.Stat(virtlogd)
	return compareQEMUConf(string(text), err == nil)
}

// compareQEMUConf judges the text of a qemu.conf. Domains carry their own user id and ask for no
// relabelling, so they start with libvirt's defaults too, with two exceptions: without virtlogd
// nothing can write their consoles, and QEMU's threads cannot join libvirt's own cgroups.
func compareQEMUConf(text string, hasVirtlogd bool) Finding {
	has, wants := settings(text), settings(deploy.QEMUConf)
	var wrong []string
	for key, want := range wants {
		switch got, set := has[key]; {
		case !set:
			wrong = append(wrong, fmt.Sprintf("%s is not set (want %s)", key, want))
		case got != want:
			wrong = append(wrong, fmt.Sprintf("%s is %s (want %s)", key, got, want))
		}
	}
	if len(wrong) == 0 {
		return ok("%s has all %d settings", qemuConfPath, len(wants))
	}
	slices.Sort(wrong)
	late := warn
	differs := func(key string) bool { return has[key] != wants[key] }
	if differs("cgroup_controllers") || differs("stdio_handler") && !hasVirtlogd {
		late = fail
	}
	return late("run nodevirt node install, which sets them; or set them in "+qemuConfPath+", and restart libvirtd",
		"%s: %s", qemuConfPath, strings.Join(wrong, ", "))
}

// settings reads one-line values in libvirt's config format, as deploy/libvirt/qemu.conf has them. A
// later line wins.
func settings(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !found || strings.HasPrefix(key, "#") {
			continue
		}
		value, _, _ = strings.Cut(value, "#")
		all[key] = strings.Join(strings.Fields(value), "")
	}
	return all
}
