// Package accel finds out what can run guest code on this machine: KVM where
// it really does, QEMU's own translator everywhere. It looks at nothing but
// the outcome of running a guest; which features /dev/kvm claims is not asked.
package accel

import (
	"context"
	"errors"
	"fmt"
)

// Accelerator is what runs guest code.
type Accelerator string

// The accelerators.
const (
	// KVM is hardware virtualisation.
	KVM Accelerator = "kvm"
	// TCG is QEMU's translator. It works everywhere and is slow.
	TCG Accelerator = "tcg"
)

// Auto is the setting that means KVM where it works, and TCG elsewhere.
const Auto = "auto"

// Resolve turns a setting (auto, kvm or tcg) into an accelerator, and says
// why, for the log. With auto and kvm it runs a guest of a few instructions
// under KVM, for a second at the most: auto falls back to TCG where that
// fails, kvm returns the failure as an error.
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
