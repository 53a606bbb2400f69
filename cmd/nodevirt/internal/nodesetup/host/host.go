// Package host calls systemd, CRI and the API server for the installation of a node.
//
// It owns these calls. It leaves to package nodesetup when they happen.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/doctor"
	"github.com/nodevirt/nodevirt/netsetup/reach"
	"github.com/nodevirt/nodevirt/shim/config"
)

// Host is this node.
type Host struct {
	// Progress gets the spinner of checks.
	Progress io.Writer
}

// Check runs nodevirt doctor's checks, except those that fail until the installation.
func (h Host) Check(ctx context.Context, c config.Config) error {
	var failed []string
	for _, f := range doctor.BeforeInstallation(ctx, c, h.Progress) {
		if f.Level == doctor.Fail {
			failed = append(failed, fmt.Sprintf("%s: %s; %s", f.Check, f.Detail, f.Remedy))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("this node cannot run VMs:\n  %s", strings.Join(failed, "\n  "))
	}
	return context.Cause(ctx)
}

// Systemctl runs systemctl.
func (h Host) Systemctl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Stop stops a unit. One that does not run, or does not exist, is no error.
func (h Host) Stop(ctx context.Context, unit string) error {
	err := h.Systemctl(ctx, "stop", unit)
	// systemctl refuses to stop a unit that does not exist.
	if err != nil && h.Systemctl(ctx, "is-active", "--quiet", unit) != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// Unlimit removes the table of nftables that keeps VMs from the node's network.
func (h Host) Unlimit(ctx context.Context) error { return reach.Remove(ctx) }

// Enabled reports whether systemd starts a unit at boot.
func (h Host) Enabled(ctx context.Context, unit string) bool {
	return h.Systemctl(ctx, "is-enabled", "--quiet", unit) == nil
}
