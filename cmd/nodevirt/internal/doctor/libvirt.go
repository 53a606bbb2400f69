package doctor

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/deploy"
	"github.com/nodevirt/nodevirt/shim/config"
)

const (
	// minLibvirt is the first version that takes disks as descriptors, as libvirt numbers it.
	minLibvirt   = 9_000_000
	qemuConfPath = "/etc/libvirt/qemu.conf"
)

func checkLibvirtd(ctx context.Context, c config.Config) Finding {
	type versions struct{ libvirt, qemu uint32 }
	type result struct {
		v   versions
		err error
	}
	done := make(chan result, 1)
	go func() { // libvirt's calls can't be given up
		v, err := func() (v versions, err error) {
			conn, err := libvirt.NewConnect(c.Libvirt.URI)
			if err != nil {
				return v, err
			}
			defer conn.Close()
			if v.libvirt, err = conn.GetLibVersion(); err != nil {
				return v, err
			}
			v.qemu, err = conn.GetVersion()
			return v, err
		}()
		done <- result{v, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		return fail("see why it hangs, and start it again: systemctl restart libvirtd", "%s: no answer within %s", c.Libvirt.URI, checkTime)
	}
	if r.err != nil {
		return fail("install libvirt-daemon-system (Debian) or libvirt-daemon-kvm (Fedora) and start it: "+
			"systemctl enable --now libvirtd; or set libvirt.uri in the shim's config", "%s: %s", c.Libvirt.URI, libvirtText(r.err))
	}
	if r.v.libvirt < minLibvirt {
		return fail("install libvirt 9.0 or later: it takes disks as open descriptors", "libvirt %s", dotted(r.v.libvirt))
	}
	if info, err := os.Stat(c.Libvirt.Run); err != nil || !info.IsDir() {
		return fail("set libvirt.run in the shim's config to libvirtd's run folder",
			"libvirt %s, but its run folder %s, where QEMU's process ids are, is not there", dotted(r.v.libvirt), c.Libvirt.Run)
	}
	return ok("libvirt %s with QEMU %s at %s", dotted(r.v.libvirt), dotted(r.v.qemu), c.Libvirt.URI)
}

// libvirtText is an error of libvirt without its numbers.
func libvirtText(err error) string {
	if e, isLibvirt := err.(libvirt.Error); isLibvirt { //nolint:errorlint // the binding returns it bare
		return e.Message
	}
	return err.Error()
}

// dotted is a version that is one number: 9000000 is 9.0.0.
func dotted(v uint32) string {
	return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1000%1000, v%1000)
}

// checkQEMUConf compares the file of libvirt's QEMU driver with ours. What the
// running libvirtd has read can't be asked for.
func checkQEMUConf(_ context.Context, c config.Config) Finding {
	if strings.Contains(c.Libvirt.URI, "+ssh:") || strings.Contains(c.Libvirt.URI, "+tcp:") || strings.Contains(c.Libvirt.URI, "+tls:") {
		return warn("run libvirtd on this node", "%s is not this node's: its settings can't be seen", c.Libvirt.URI)
	}
	text, err := os.ReadFile(qemuConfPath)
	if err != nil {
		return warn("install deploy/libvirt/qemu.conf as "+qemuConfPath+", and restart libvirtd", "%v", err)
	}
	has, wants := settings(string(text)), settings(deploy.QEMUConf)
	var wrong []string
	for key, want := range wants {
		switch got, set := has[key]; {
		case !set:
			wrong = append(wrong, fmt.Sprintf("%s is not set, not %s", key, want))
		case got != want:
			wrong = append(wrong, fmt.Sprintf("%s is %s, not %s", key, got, want))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fail("take the lines of deploy/libvirt/qemu.conf into "+qemuConfPath+", and restart libvirtd",
			"%s: %s", qemuConfPath, strings.Join(wrong, ", "))
	}
	return ok("%s has all %d settings", qemuConfPath, len(wants))
}

// settings reads libvirt's config format as far as one-line values go, which is
// all that ours has. A later line wins.
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

// checkUsers looks for those that libvirtd needs at its start.
func checkUsers(context.Context, config.Config) Finding {
	var missing []string
	if _, err := user.LookupGroup("kvm"); err != nil {
		missing = append(missing, "group kvm")
	}
	if _, err := user.Lookup("libvirt-qemu"); err != nil {
		if _, err := user.Lookup("qemu"); err != nil { // Fedora's name
			missing = append(missing, "user libvirt-qemu")
		}
	}
	if len(missing) > 0 {
		return fail("install libvirt-daemon-system (Debian), which makes them, or: groupadd --system kvm; "+
			"useradd --system --gid kvm libvirt-qemu", "there is no %s, which libvirtd looks for", strings.Join(missing, " and no "))
	}
	return ok("group kvm and libvirt's own user are there")
}
