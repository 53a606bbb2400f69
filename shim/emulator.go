package shim

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/domain/landlock"
)

// emulatorOf returns the path that libvirt starts as QEMU: QEMU itself, or a link to the program that
// limits QEMU to its VM's files.
func emulatorOf(c config.Config, log *slog.Logger) (string, error) {
	if c.VM.Landlock == config.LandlockOff {
		return c.VM.Emulator, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	program := filepath.Join(filepath.Dir(self), landlock.Name)
	link, err := landlock.Link(filepath.Join(c.Run, "emulators"), program, c.VM.Emulator)
	switch {
	case err == nil:
		log.Info("QEMU is limited to its VM's files", "emulator", link)
		return link, nil
	case c.VM.Landlock == config.LandlockRequire:
		return "", fmt.Errorf("vm.landlock is require: %w", err)
	}
	log.Warn("QEMU is not limited to its VM's files", "error", err)
	return c.VM.Emulator, nil
}
