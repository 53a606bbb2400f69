package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/domain/accel"
)

func checkRoot(context.Context, config.Config) Finding {
	if os.Geteuid() != 0 {
		return warn("run doctor as root: sudo nodevirt doctor", "not root: other checks may fail for that reason alone")
	}
	return ok("root")
}

// minQEMU is the oldest major version of QEMU that the shim is tested with.
const minQEMU = 7

func checkQEMU(ctx context.Context, c config.Config) Finding {
	const remedy = "install qemu-system-x86 (Debian) or qemu-kvm (Fedora), or set vm.emulator in the shim's config"
	text, err := version(ctx, c.VM.Emulator)
	if err != nil {
		return fail(remedy, "%v", err)
	}
	if major(text) < minQEMU {
		return warn("install QEMU "+strconv.Itoa(minQEMU)+" or later", "%s: nodevirt is not tested with versions before %d", text, minQEMU)
	}
	return ok("%s", text)
}

func checkQemuImg(ctx context.Context, c config.Config) Finding {
	text, err := version(ctx, c.Tools.QemuImg)
	if err != nil {
		return fail("install qemu-utils (Debian) or qemu-img (Fedora), or set tools.qemu_img in the shim's config", "%v", err)
	}
	return ok("%s", text)
}

func checkDnsmasq(ctx context.Context, c config.Config) Finding {
	text, err := version(ctx, c.Tools.Dnsmasq)
	if err != nil {
		return fail("install dnsmasq-base (Debian) or dnsmasq (Fedora), or set tools.dnsmasq in the shim's config", "%v", err)
	}
	return ok("%s", text)
}

func checkNft(ctx context.Context, _ config.Config) Finding {
	text, err := version(ctx, "nft")
	if err != nil {
		return fail("install nftables", "%v", err)
	}
	return ok("%s", text)
}

// accelerationTime is more than both accelerators' probes take on a busy node.
const accelerationTime = 25 * time.Second

// checkAccelerator runs guest code.
func checkAccelerator(ctx context.Context, c config.Config) Finding {
	a, why, err := accel.Resolve(ctx, c.VM.Accelerator, c.VM.Emulator)
	if err != nil {
		return fail("repair the cause, or set vm.accelerator to auto or tcg in the shim's config", "%v", err)
	}
	if a == accel.KVM {
		return ok("kvm: %s", why)
	}
	if err := accel.Probe(ctx, a, c.VM.Emulator); err != nil {
		return fail("reinstall QEMU: it cannot run guest code", "%s: %v", a, err)
	}
	return warn("enable virtualization in the node's firmware or, if the node is a VM itself, nested virtualization on its host; "+
		"without KVM guests run about ten times slower", "%s (emulation): %s", a, why)
}

// version returns the first line that a program prints with --version.
func version(ctx context.Context, program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, notFound(err))
	}
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", path, err, bytes.TrimSpace(stderr.Bytes()))
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	line, _, _ = strings.Cut(line, "  ") // dnsmasq's copyright
	return line, nil
}

// notFound returns the cause of LookPath's error without its prefix.
func notFound(err error) error {
	if e, ok := err.(*exec.Error); ok { //nolint:errorlint // LookPath returns just this
		return e.Err
	}
	return err
}

// major returns the major number of the first version in a text, or 0 if there is none.
func major(text string) int {
	m := regexp.MustCompile(`(\d+)\.\d+`).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // digits, as matched
	return n
}
