package accel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// The user of a probe: VMs don't run as root either.
	nobody = 65534
	// imageFile is where QEMU finds the guest's image.
	imageFile = "/proc/self/fd/3"
)

var errNoEmulator = errors.New("QEMU does not start")

// guest is a guest of a few instructions that shows that it ran.
type guest struct {
	// image is the content of imageFile.
	image []byte
	// args are QEMU's arguments for the board.
	args []string
	// status is QEMU's exit code after the guest ran.
	status int
	// output, if any, reports whether the guest wrote the text to its serial port.
	output func(text string) bool
}

// guestOf returns the guest for the processor of an architecture, by Go's name.
func guestOf(architecture string, a Accelerator) guest {
	if architecture == "arm64" {
		return arm64(a)
	}
	return amd64()
}

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
	return probe(ctx, a, emulator, guestOf(runtime.GOARCH, a))
}

func probe(ctx context.Context, a Accelerator, emulator string, g guest) error {
	image, err := imageOf(g)
	if err != nil {
		return err
	}
	defer image.Close()

	limit := probeTime(a)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the probe guest did not end within %s", limit))
	defer cancel()
	var stdout, stderr bytes.Buffer
	cpu := map[Accelerator]string{KVM: "host", TCG: "max"}[a]
	cmd := exec.CommandContext(ctx, emulator, append([]string{
		"-accel", string(a), "-cpu", cpu, "-no-user-config", "-display", "none",
	}, g.args...)...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{image} // descriptor 3, see imageFile
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: credential()}
	return g.verdict(ctx, cmd.Run(), stdout.String(), strings.TrimSpace(stderr.String()))
}

// imageOf returns a guest's image in a file without a name, which needs no removal.
func imageOf(g guest) (*os.File, error) {
	fd, err := unix.MemfdCreate("nodevirt-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create the probe's image: %w", err)
	}
	f := os.NewFile(uintptr(fd), "probe's image")
	if _, err := f.Write(g.image); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the probe's image: %w", err)
	}
	return f, nil
}

// verdict returns an error unless QEMU's exit shows that the guest ran.
func (g guest) verdict(ctx context.Context, err error, stdout, stderr string) error {
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	ended := err == nil || exit != nil
	switch {
	case ended && code == g.status && (g.output == nil || g.output(stdout)):
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
