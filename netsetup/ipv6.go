package netsetup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The functions of this file are about an interface in the thread's own network
// namespace: /proc/sys/net shows each thread its own. Kernels without IPv6 have no such
// files, and nothing to do.

func ipv6Sysctl(link string) string {
	return filepath.Join("/proc/sys/net/ipv6/conf", link, "disable_ipv6")
}

func ipv6Disabled(link string) (bool, error) {
	value, err := os.ReadFile(ipv6Sysctl(link))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read IPv6 setting of %s: %w", link, err)
	}
	return strings.TrimSpace(string(value)) != "0", nil
}

// disableIPv6 keeps the pod from answering, or configuring itself, on a device that only
// carries the guest's frames. Disabling removes the device's IPv6 addresses.
func disableIPv6(link string, disable bool) error {
	value := "0"
	if disable {
		value = "1"
	}
	err := os.WriteFile(ipv6Sysctl(link), []byte(value), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set IPv6 of %s: %w", link, err)
	}
	return nil
}
