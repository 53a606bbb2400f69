package netsetup

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// errGone means that a network namespace no longer exists.
var errGone = errors.New("network namespace is gone")

// within runs fn on a thread in the network namespace at path: the sockets and processes that fn
// creates belong to that namespace, and fn sees its sysctls. fn must not create them in goroutines.
func within(path string, fn func() error) error {
	ns, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer ns.Close()

	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("open own network namespace: %w", err)
			return
		}
		defer home.Close()
		if err := netns.Set(ns); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("enter network namespace %s: %w", path, err)
			return
		}
		err = fn()
		// A thread that can't return stays locked and so ends with this goroutine.
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// withinLink is within, with a netlink handle of that namespace.
func withinLink(path string, fn func(*netlink.Handle) error) error {
	return within(path, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink in %s: %w", path, err)
		}
		defer h.Close()
		return fn(h)
	})
}

// openNamespace opens a network namespace. The error is errGone if none is mounted at path.
func openNamespace(path string) (netns.NsHandle, error) {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && st.Type != unix.NSFS_MAGIC:
		return netns.None(), fmt.Errorf("%s: %w", path, errGone)
	case err != nil:
		return netns.None(), fmt.Errorf("stat network namespace %s: %w", path, err)
	}
	ns, err := netns.GetFromPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return netns.None(), fmt.Errorf("%s: %w", path, errGone)
	}
	if err != nil {
		return netns.None(), fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return ns, nil
}

// isCurrent reports whether path is the caller's own network namespace.
func isCurrent(path string) (bool, error) {
	var here, there unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &here); err != nil {
		return false, fmt.Errorf("stat own network namespace: %w", err)
	}
	if err := unix.Stat(path, &there); err != nil {
		return false, fmt.Errorf("stat network namespace %s: %w", path, err)
	}
	return here.Dev == there.Dev && here.Ino == there.Ino, nil
}

// findLink returns nil without an error if there is no such link.
func findLink(h *netlink.Handle, name string) (netlink.Link, error) {
	link, err := h.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up link %s: %w", name, err)
	}
	return link, nil
}
