// Package accel tests which accelerator works on this node: KVM, or only QEMU's
// translator, which works everywhere. It decides by running a guest, not by the
// features that /dev/kvm reports. It leaves the use of the accelerator to package
// domain.
package accel

import (
	"context"
	"errors"
	"fmt"
)

// Accelerator executes guest code.
type Accelerator string

// The accelerators.
const (
	// KVM is hardware virtualization.
	KVM Accelerator = "kvm"
	// TCG is QEMU's translator. It works everywhere and is slow.
	TCG Accelerator = "tcg"
)

// Auto is the setting that means KVM where it works, and TCG elsewhere.
const Auto = "auto"

// Resolve returns the accelerator for a setting (auto, kvm or tcg), and the reason
// for the log. With auto and kvm it runs a guest of a few instructions under KVM,
// for at most a second. If that fails, auto falls back to TCG, and kvm returns the
// error.
func Resolve(ctx context.Context, setting, emulator string) (Accelerator, string, error) {
	switch setting {
	case string(TCG):
		return TCG, "set by configuration", nil
	case string(KVM), Auto:
	default:
		return "", "", fmt.Errorf("accelerator %q: want %s, %s or %s", setting, Auto, KVM, TCG)
	}
	err := Probe(ctx, KVM, emulator)
	switch {
	case err == nil:
		return KVM, "a probe guest ran under KVM", nil
	case ctx.Err() != nil:
		return "", "", fmt.Errorf("probe KVM: %w", context.Cause(ctx))
	case setting == Auto && !errors.Is(err, errNoEmulator):
		return TCG, "KVM does not work here: " + err.Error(), nil
	default:
		return "", "", fmt.Errorf(
			"accelerator %s is not usable here, set %s or %s to go without: %w", KVM, Auto, TCG, err)
	}
}
