package shutdown

import (
	"context"
	"fmt"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// systemdStops reports whether systemd stops all units: "systemctl is-system-running" prints stopping.
func systemdStops(ctx context.Context) (bool, error) {
	c, err := systemd.NewSystemdConnectionContext(ctx)
	if err != nil {
		return false, fmt.Errorf("connect to systemd: %w", err)
	}
	defer c.Close()
	state, err := c.SystemStateContext(ctx)
	if err != nil {
		return false, fmt.Errorf("ask systemd for its state: %w", err)
	}
	return state.Value.Value() == "stopping", nil
}

// logindPrepares reports whether logind has announced a shutdown, which programs such as the kubelet may delay.
func logindPrepares(ctx context.Context) (bool, error) {
	c, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return false, fmt.Errorf("connect to D-Bus: %w", err)
	}
	defer func() { _ = c.Close() }()
	const manager = "org.freedesktop.login1"
	var prepares dbus.Variant
	// A logind that does not run knows of no shutdown, and must not be started by the question.
	err = c.Object(manager, "/org/freedesktop/login1").CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", dbus.FlagNoAutoStart,
		manager+".Manager", "PreparingForShutdown").Store(&prepares)
	if err != nil {
		return false, fmt.Errorf("ask logind: %w", err)
	}
	yes, _ := prepares.Value().(bool)
	return yes, nil
}
