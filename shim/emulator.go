package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/domain/landlock"
	"github.com/nodevirt/nodevirt/shim/forks"
)

// foreignEmulators returns the paths that libvirt starts as QEMU for guests of other architectures.
func foreignEmulators(c config.Config, log *slog.Logger) (map[string]string, error) {
	all := map[string]string{}
	for arch, qemu := range c.VM.Foreign {
		if _, err := os.Stat(qemu); err != nil {
			log.Info("no guests of this architecture", "architecture", arch, "reason", err)
			continue
		}
		path, err := emulatorOf(c, qemu, log)
		if err != nil {
			return nil, err
		}
		all[arch] = path
	}
	return all, nil
}

// emulatorOf returns the path that libvirt starts as QEMU: QEMU itself, or a link to the program that
// limits QEMU to its VM's files.
func emulatorOf(c config.Config, qemu string, log *slog.Logger) (string, error) {
	if c.VM.Landlock == config.LandlockOff {
		return qemu, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	program := filepath.Join(filepath.Dir(self), landlock.Name)
	link, err := landlock.Link(filepath.Join(c.Run, "emulators"), program, qemu)
	switch {
	case err == nil:
		log.Info("QEMU is limited to its VM's files", "emulator", link)
		return link, nil
	case c.VM.Landlock == config.LandlockRequire:
		return "", fmt.Errorf("vm.landlock is require: %w", err)
	}
	log.Warn("QEMU is not limited to its VM's files", "error", err)
	return qemu, nil
}

// relink makes links to QEMU again that are gone from the run folder. They are the paths of
// emulatorOf and of foreignEmulators.
func relink(c config.Config, emulator string, foreign map[string]string, log *slog.Logger) error {
	links := map[string]string{c.VM.Emulator: emulator}
	for arch, link := range foreign {
		links[c.VM.Foreign[arch]] = link
	}
	var errs []error
	for qemu, link := range links {
		if _, err := os.Lstat(link); link == qemu || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		log.Warn("the link to QEMU is gone, and made again", "link", link)
		_, err := emulatorOf(c, qemu, log)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// newForks returns the memory that VMs from the same checkpoint share. They can if libvirt starts the
// program that limits QEMU, since it also gives QEMU the RAM.
func newForks(c config.Config, emulator string) (*forks.Store, error) {
	dir := filepath.Join(c.Root, "checkpoints")
	if emulator == c.VM.Emulator {
		return forks.New(dir, 0), nil
	}
	limit, err := forks.Limit()
	return forks.New(dir, limit), err
}
