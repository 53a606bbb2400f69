package accel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// romSize is the smallest BIOS that QEMU takes.
	romSize = 64 << 10
	// resetVector is where a processor starts, as an offset in the ROM.
	resetVector = 0xfff0
	// exitPort is the port of QEMU's isa-debug-exit device.
	exitPort = 0xf4
	// exitValue is what the guest writes to the port; QEMU then ends with
	// exitStatus, which no failure of its own gives.
	exitValue  = 0x2a
	exitStatus = exitValue<<1 | 1
	// probeTime bounds a probe. A guest of three instructions that needs
	// longer than that, QEMU's start included, would never boot a system.
	probeTime = time.Second
	// nobody is the user that a probe runs as: a VM isn't root either.
	nobody = 65534
)

var (
	errNoEmulator = errors.New("QEMU does not start")
	errTimeout    = fmt.Errorf("the probe guest did not end within %s", probeTime)
)

// Probe runs a tiny guest under a and returns an error unless it ran to its
// end, within a second. QEMU runs as an unprivileged user in /dev/kvm's group
// (see [DeviceGroup]) where the caller is root, as itself elsewhere.
func Probe(ctx context.Context, a Accelerator, emulator string) error {
	rom, err := romFile()
	if err != nil {
		return err
	}
	defer rom.Close()

	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, errTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, emulator, probeArgs(a)...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{rom} // descriptor 3, see probeArgs
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: credential()}
	return verdict(ctx, cmd.Run(), strings.TrimSpace(stderr.String()))
}

func probeArgs(a Accelerator) []string {
	return []string{
		"-accel", string(a), "-machine", "pc", "-m", "2",
		"-nodefaults", "-no-user-config", "-display", "none",
		"-bios", "/proc/self/fd/3",
		"-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=4", exitPort),
	}
}

// verdict tells from QEMU's end whether the guest ran.
func verdict(ctx context.Context, err error, stderr string) error {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == exitStatus:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return errors.New("QEMU ended before the probe guest did")
	case exit == nil:
		return fmt.Errorf("%w: %w", errNoEmulator, err)
	default:
		return fmt.Errorf("%w: %s", err, stderr)
	}
}

// rom is a BIOS whose only code is at the reset vector:
//
//	mov al, exitValue
//	out exitPort, al
//	hlt
func rom() []byte {
	b := make([]byte, romSize)
	copy(b[resetVector:], []byte{0xb0, exitValue, 0xe6, exitPort, 0xf4})
	return b
}

// romFile is rom in a file without a name, so that nothing is left to remove.
func romFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("nodevirt-probe-rom", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file for the probe's ROM: %w", err)
	}
	f := os.NewFile(uintptr(fd), "probe-rom")
	if _, err := f.Write(rom()); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the probe's ROM: %w", err)
	}
	return f, nil
}

func credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	gid, needed := DeviceGroup()
	if !needed {
		gid = nobody
	}
	return &syscall.Credential{Uid: nobody, Gid: gid}
}
