package domain

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/needs"
)

// stageVariable has the role of a re-executed test binary.
const stageVariable = "NODEVIRT_DOMAIN_TEST_STAGE"

// TestMain runs the tests in mount, network and process id namespaces
// for themselves, three processes deep: the one that "go test" started, which only waits;
// an init, which mounts and reaps, as libvirt's QEMU processes are orphans by
// design; and the tests. When the init ends the kernel kills what is left, so
// that nothing can stay behind.
func TestMain(m *testing.M) {
	if needs.Unit() {
		os.Exit(m.Run())
	}
	switch os.Getenv(stageVariable) {
	case "":
		os.Exit(enter())
	case "init":
		os.Exit(beInit())
	default:
		os.Exit(m.Run())
	}
}

func enter() int {
	runtime.LockOSThread() // Pdeathsig follows the thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), stageVariable+"=init")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "these tests need root, for namespaces:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

func beInit() int {
	err := errors.Join(privateMounts(), os.Setenv(stageVariable, "tests"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the test's namespaces:", err)
		return 1
	}
	tests, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			fmt.Fprintln(os.Stderr, "wait for the tests:", err)
			return 1
		case pid == tests.Pid && status.Exited():
			return status.ExitStatus()
		case pid == tests.Pid:
			return 1
		}
	}
}

// privateMounts hides the folders that libvirtd writes under empty ones.
func privateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/etc/libvirt", "/run", "/var/lib", "/var/log", "/var/cache"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("cover %s: %w", dir, err)
		}
	}
	return errors.Join(
		hideKVM(),
		addLine("/etc/passwd", "libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin"),
		addLine("/etc/group", "libvirt-qemu:x:64055:"),
	)
}

// hideKVM makes a /dev of few devices. Where there is a /dev/kvm that doesn't
// work, or that the user libvirt-qemu can't open, libvirtd takes many seconds
// to ask QEMU what it can do, again and again.
func hideKVM() error {
	const old = "/run/dev"
	if err := os.Mkdir(old, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/dev", old, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "random", "urandom", "net/tun", "loop-control"} {
		path := filepath.Join("/dev", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		if err := unix.Mount(filepath.Join(old, name), path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep %s: %w", path, err)
		}
	}
	return unix.Unmount(old, unix.MNT_DETACH)
}

// addLine covers a file with a copy that has one more line. Debian's libvirtd
// doesn't start without the user libvirt-qemu, which a package makes that
// isn't needed otherwise. Where the user is there, the second line is ignored.
func addLine(path, line string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	private := filepath.Join("/run", filepath.Base(path))
	if err := os.WriteFile(private, append(text, line+"\n"...), 0o644); err != nil {
		return err
	}
	return unix.Mount(private, path, "", unix.MS_BIND, "")
}
