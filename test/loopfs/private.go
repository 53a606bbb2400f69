package loopfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// inside marks the process that Private started.
const inside = "NODEVIRT_PRIVATE_MOUNTS"

// Private calls run in a process like this one whose mounts other processes don't see, and which
// end with it: this one is that process, or runs it and returns its exit code. It is for the
// beginning of main, and of TestMain.
func Private(run func() int) int {
	if os.Getenv(inside) != "" {
		return run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	// An interrupt of the terminal's reaches both; the other one ends the run.
	signal.Ignore(os.Interrupt)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "run with private mounts: %v\n", err)
		return 1
	}
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "run with private mounts: %v\n", err)
		return 1
	}
	return 0
}
