package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/deploy"
	"github.com/nodevirt/nodevirt/shim/config"
)

func TestQEMUConfVerdicts(t *testing.T) {
	without := func(key string) string {
		var kept []string
		for line := range strings.Lines(deploy.QEMUConf) {
			if !strings.HasPrefix(line, key) {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	for name, c := range map[string]struct {
		text     string
		virtlogd bool
		level    Level
		detail   string
	}{
		"ours":                      {deploy.QEMUConf, false, OK, "all"},
		"a slow user":               {without("user"), false, Warn, `user is not set (want "+65534")`},
		"another value":             {deploy.QEMUConf + "max_core = 1\n", false, Warn, "max_core is 1 (want 0)"},
		"the package's own":         {"# user = \"root\"\n", true, Fail, "cgroup_controllers is not set"},
		"consoles by virtlogd":      {without("stdio_handler"), true, Warn, "stdio_handler is not set"},
		"nothing to write consoles": {without("stdio_handler"), false, Fail, "stdio_handler is not set"},
	} {
		if f := compareQEMUConf(c.text, c.virtlogd); f.Level != c.level || !strings.Contains(f.Detail, c.detail) || (f.Remedy == "") != (c.level == OK) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestInitiatorVerdicts(t *testing.T) {
	failed := errors.New("exit status 1")
	for name, c := range map[string]struct {
		mode, answer string
		err          error
		want         Level
	}{
		"there":                      {"file", "qemu-img: Could not open 'iscsi://': iSCSI: Failed to connect to LUN", failed, OK},
		"no module":                  {"file", "qemu-img: Could not open 'iscsi://': Unknown protocol 'iscsi'", failed, Warn},
		"no module, and all need it": {"iscsi", "qemu-img: Could not open 'iscsi://': Unknown protocol 'iscsi'", failed, Fail},
		"no qemu-img":                {"file", "", errors.New("not found"), Warn},
	} {
		cfg := config.Default()
		cfg.Disks.Mode = c.mode
		if f := initiator(cfg, c.answer, c.err); f.Level != c.want {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestChecksThatHang: a check that VMs do not depend on is no failure if it hangs.
func TestChecksThatHang(t *testing.T) {
	for name, c := range map[string]struct {
		optional bool
		want     Level
	}{"required": {false, Fail}, "optional": {true, Warn}} {
		k := check{name: name, optional: c.optional, limit: 10 * time.Millisecond, do: func(ctx context.Context, _ config.Config) Finding {
			<-ctx.Done()
			return fail("install it", "%v", ctx.Err())
		}}
		if f := bounded(t.Context(), k, config.Default()); f.Level != c.want || !strings.Contains(f.Detail, "no answer") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
