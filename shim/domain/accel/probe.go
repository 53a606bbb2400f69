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
)

const (
	// exitPort is the port of QEMU's isa-debug-exit device.
	exitPort = 0xf4
	// exitStatus is QEMU's exit code when the guest writes 0x2a to the port. No
	// failure of QEMU has it.
	exitStatus = 0x2a<<1 | 1
	// The user of a probe: VMs don't run as root either.
	nobody = 65534
)

var errNoEmulator = errors.New("QEMU does not start")

// probeTime is how long a probe may take. With KVM a probe takes a few hundredths of
// a second, and the limit is short to detect a guest that hangs. With TCG a probe
// takes a tenth of a second, or some seconds on a busy node.
func probeTime(a Accelerator) time.Duration {
	if a == TCG {
		return 20 * time.Second
	}
	return time.Second
}

// Probe boots a tiny guest with accelerator a, as a VM boots. It returns an error
// unless the guest ends within a second, or within 20 seconds with TCG. If the
// caller is root, QEMU runs as an unprivileged user in the group of /dev/kvm, see
// [DeviceGroup].
func Probe(ctx context.Context, a Accelerator, emulator string) error {
	disk, err := diskFile()
	if err != nil {
		return err
	}
	defer disk.Close()

	limit := probeTime(a)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the probe guest did not end within %s", limit))
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, emulator, probeArgs(a)...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{disk} // descriptor 3, see probeArgs
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: credential()}
	return verdict(ctx, cmd.Run(), strings.TrimSpace(stderr.String()))
}

func probeArgs(a Accelerator) []string {
	cpu := map[Accelerator]string{KVM: "host", TCG: "max"}[a]
	return []string{
		"-accel", string(a), "-cpu", cpu, "-machine", "q35", "-m", "16",
		"-nodefaults", "-no-user-config", "-display", "none",
		"-drive", "file=/proc/self/fd/3,format=raw,if=virtio,readonly=on",
		"-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=4", exitPort),
	}
}

// verdict returns an error unless QEMU's exit shows that the guest ran.
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
