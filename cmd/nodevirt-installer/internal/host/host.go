// Package host changes the node's operating system for the installer: it places programs on the node,
// and has the node's systemd run them.
//
// It owns the folder of the programs and the calls to systemd. It leaves what an installation changes
// to the command nodevirt. That command runs in a unit of the node: it restarts the kubelet, and must
// end even if its pod is killed.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

const (
	// Dir is the folder on the node, at the same path in the pod.
	Dir = "/opt/nodevirt"

	// setupUnit runs the command nodevirt, shimUnit is the shim's.
	setupUnit = "nodevirt-setup.service"
	shimUnit  = "nodevirt-shim.service"
	// logFile has the command's output.
	logFile = "setup.log"
	// patience is how long systemd may be unreachable, such as while it is upgraded.
	patience = time.Minute
	// maxOutput bounds what is read of the command's output, in bytes.
	maxOutput = 64 << 10
)

// Systemd is the node's systemd. [dbus.Conn] implements it.
type Systemd interface {
	ListUnitsByNamesContext(ctx context.Context, units []string) ([]dbus.UnitStatus, error)
	StartTransientUnitContext(ctx context.Context, name, mode string, properties []dbus.Property, ch chan<- string) (int, error)
	ResetFailedUnitContext(ctx context.Context, name string) error
	TryRestartUnitContext(ctx context.Context, name, mode string, ch chan<- string) (int, error)
	Close()
}

// Connect connects to the node's systemd by its private socket, where a process needs no capability.
func Connect(ctx context.Context) (Systemd, error) {
	return dbus.NewSystemdConnectionContext(ctx)
}

// Host is the node.
type Host struct {
	// Programs is the image's folder of programs.
	Programs *os.Root
	// Folder is [Dir] of the node, and Dir its path there.
	Folder *os.Root
	Dir    string
	// Connect connects to the node's systemd.
	Connect func(ctx context.Context) (Systemd, error)
	// Out gets the output of the command nodevirt.
	Out io.Writer
	// Poll is the time between two looks at a unit.
	Poll time.Duration
}

// Run runs the command nodevirt on the node, and returns its error. The command does not end with this
// process; Run waits for an earlier one first.
func (h *Host) Run(ctx context.Context, args ...string) error {
	name := "nodevirt " + strings.Join(args, " ")
	if _, err := h.wait(ctx); err != nil {
		return fmt.Errorf("wait for an earlier installation: %w", err)
	}
	if err := h.start(ctx, append([]string{path.Join(h.Dir, programs, "nodevirt")}, args...)); err != nil {
		return fmt.Errorf("run %s on the node: %w", name, err)
	}
	failed, err := h.wait(ctx)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", name, err)
	}
	output, err := h.output()
	if err != nil {
		return err
	}
	fmt.Fprint(h.Out, output)
	if failed {
		return errors.New(failure(name, output))
	}
	return nil
}

// start starts the unit with a command.
func (h *Host) start(ctx context.Context, command []string) error {
	s, err := h.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer s.Close()
	// A unit that failed keeps its name.
	if err := s.ResetFailedUnitContext(ctx, setupUnit); err != nil && !noSuchUnit(err) {
		return err
	}
	_, err = s.StartTransientUnitContext(ctx, setupUnit, "fail", []dbus.Property{
		dbus.PropDescription("Installation of nodevirt"),
		dbus.PropType("oneshot"),
		dbus.PropExecStart(command, false), // systemd reads the last value as: ignore failures
		{Name: "StandardOutputFileToTruncate", Value: godbus.MakeVariant(path.Join(h.Dir, logFile))},
		{Name: "StandardError", Value: godbus.MakeVariant("inherit")},
	}, nil)
	return err
}

// wait returns when the unit does not run, and whether it failed. Each look has a new connection, as
// systemd closes them when it is upgraded.
func (h *Host) wait(ctx context.Context) (failed bool, err error) {
	reached := time.Now()
	for {
		st, err := h.status(ctx)
		switch {
		case err == nil && st.JobId == 0 && st.ActiveState == "inactive":
			return false, nil
		case err == nil && st.JobId == 0 && st.ActiveState == "failed":
			return true, nil
		case err == nil:
			reached = time.Now()
		case time.Since(reached) > patience:
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, errors.Join(context.Cause(ctx), err)
		case <-time.After(h.Poll):
		}
	}
}

func (h *Host) status(ctx context.Context) (dbus.UnitStatus, error) {
	s, err := h.Connect(ctx)
	if err != nil {
		return dbus.UnitStatus{}, fmt.Errorf("connect to systemd: %w", err)
	}
	defer s.Close()
	list, err := s.ListUnitsByNamesContext(ctx, []string{setupUnit})
	if err != nil {
		return dbus.UnitStatus{}, err
	}
	if len(list) != 1 {
		return dbus.UnitStatus{}, fmt.Errorf("systemd lists %d units named %s", len(list), setupUnit)
	}
	return list[0], nil
}

// restartShim restarts the shim if it runs. VMs run on.
func (h *Host) restartShim(ctx context.Context) error {
	s, err := h.Connect(ctx)
	if err != nil {
		return fmt.Errorf("restart %s: connect to systemd: %w", shimUnit, err)
	}
	defer s.Close()
	if _, err := s.TryRestartUnitContext(ctx, shimUnit, "replace", nil); err != nil && !noSuchUnit(err) {
		return fmt.Errorf("restart %s: %w", shimUnit, err)
	}
	return nil
}

func noSuchUnit(err error) bool {
	var e godbus.Error
	return errors.As(err, &e) && e.Name == "org.freedesktop.systemd1.NoSuchUnit"
}

// output returns the end of the command's output.
func (h *Host) output() (string, error) {
	f, err := h.Folder.Open(logFile)
	if err != nil {
		return "", fmt.Errorf("read the installation's output: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxOutput {
		if _, err := f.Seek(-maxOutput, io.SeekEnd); err != nil {
			return "", fmt.Errorf("read the installation's output: %w", err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxOutput))
	if err != nil {
		return "", fmt.Errorf("read the installation's output: %w", err)
	}
	return string(text), nil
}

// lastError matches the error that the command nodevirt prints at its end.
var lastError = regexp.MustCompile(`(?s)(?:^|\n)nodevirt: (.*)$`)

// failure returns the message of a failed command.
func failure(name, output string) string {
	output = strings.TrimSpace(output)
	switch m := lastError.FindStringSubmatch(output); {
	case strings.Contains(output, "error while loading shared libraries"):
		return name + ": " + output + "; install libvirt, QEMU and the other packages that docs/node.md lists"
	case m != nil:
		return name + ": " + m[1]
	}
	return name + " failed: " + output
}
