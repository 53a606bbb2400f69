package nodesetup

import (
	"context"
	"os"
	"path"
	"strings"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/rooted"
	"github.com/nodevirt/nodevirt/shim/domain/landlock"
)

const appArmorUnit = "apparmor.service"

// appArmor returns the edit that permits libvirt's daemon to execute the program that limits QEMU; none
// if the node has no AppArmor, or no profile for the daemon. programs is the folder of the shim.
func (d daemon) appArmor(root *os.Root, programs string) ([]edit, error) {
	if !hasAppArmor(root) {
		return nil, nil
	}
	profile, err := read(root, "etc/apparmor.d/usr.sbin."+string(d))
	if err != nil || profile == "" {
		return nil, err
	}
	name := landlock.Profile(string(d))
	text, err := read(root, name)
	if err != nil {
		return nil, err
	}
	rule := landlock.Rule(path.Join(programs, landlock.Name))
	if !strings.Contains(text, rule) {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += rule + "\n"
	}
	return []edit{{name, text, string(d) + " may start the program that limits QEMU to its VM's files"}}, nil
}

// hasAppArmor reports whether systemd loads AppArmor's profiles.
func hasAppArmor(root *os.Root) bool {
	_, err := rooted.Stat(root, "usr/lib/systemd/system/"+appArmorUnit)
	return err == nil
}

// reload has systemd and, if it is in use, AppArmor read their files again. Confined processes, such as
// libvirt's daemon, run on.
func (s *Setup) reload(ctx context.Context) error {
	if err := s.Node.Systemctl(ctx, "daemon-reload"); err != nil || !hasAppArmor(s.Root) {
		return err
	}
	return s.Node.Systemctl(ctx, "try-reload-or-restart", appArmorUnit)
}

// programsOf returns the folder of the program that a unit starts; empty if the text has none.
func programsOf(unit string) string {
	for line := range strings.Lines(unit) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			program, _, _ := strings.Cut(command, " ")
			return path.Dir(program)
		}
	}
	return ""
}
