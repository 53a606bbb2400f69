package netsetup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The functions in this file read and set an interface of the calling thread's network
// namespace, which is what /proc/sys/net shows. On kernels without IPv6, which have no such
// files, they do nothing.

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
