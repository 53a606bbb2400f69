package guest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
)

func TestBootSector(t *testing.T) {
	for name, then := range map[string]guest.Then{"halt": guest.Halt, "power off": guest.PowerOff, "restart": guest.Restart} {
		t.Run(name, func(t *testing.T) {
			disk := filepath.Join(t.TempDir(), "sector.raw")
			assert.NilError(t, os.WriteFile(disk, guest.BootSector("here I am", then), 0o644))
			args := drive(disk, "raw")
			if then == guest.Restart {
				args = append(args, "-no-reboot") // qemu ends instead
			}
			m := start(t, 16, args...)
			m.waitFor("here I am$", 5*time.Minute)
			if then != guest.Halt {
				m.waitEnd()
				return
			}
			m.execute("system_powerdown", nil, nil)
			var status struct{ Status string }
			if m.execute("query-status", nil, &status); status.Status != "running" {
				t.Errorf("the machine is %s", status.Status)
			}
		})
	}
}
