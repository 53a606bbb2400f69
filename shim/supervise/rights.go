package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// launch starts cmd with no other capabilities than p's, whatever user the program runs as. The limit is that of the
// thread that forks, and nothing takes it off again: so that thread ends here.
func (p Process) launch(cmd *exec.Cmd) error {
	if p.Capabilities == nil {
		return cmd.Start()
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer ns.Close()
	return onOwnThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the caller's network namespace: %w", err)
		}
		if err := limit(p.Capabilities); err != nil {
			return fmt.Errorf("limit the capabilities of %s: %w", p.Name, err)
		}
		return cmd.Start()
	})
}

// onOwnThread calls fn on a thread that ends with it. It spares the first thread, whose rights and namespaces are those
// of /proc/self.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onOwnThread(fn) // on another one, as this one is held
			return
		}
		done <- fn()
	}()
	return <-done
}

// limit has no program that the thread starts get other capabilities.
func limit(keep []uintptr) error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(keep, c) {
			continue
		}
		// The kernel may know fewer.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var own [2]unix.CapUserData
	if err := unix.Capget(&header, &own[0]); err != nil {
		return err
	}
	// Inheritable ones pass the bounding set, and ambient ones are among them.
	own[0].Inheritable, own[1].Inheritable = 0, 0
	return unix.Capset(&header, &own[0])
}
