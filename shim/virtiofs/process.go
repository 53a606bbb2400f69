package virtiofs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/supervise"
)

// killAfter is how long a virtiofsd has to end by itself: the kernel has what the guest wrote.
const killAfter = 2 * time.Second

// The descriptors of the process that calls [Enter]: those of [supervise.Process] from 3 on.
const (
	socketFD = 3
	mountFD  = 4
	pidFD    = 5
)

// oldProgram is the virtiofsd that QEMU had up to 7.2, which takes other arguments.
const oldProgram = "/usr/lib/qemu/virtiofsd"

// arguments returns virtiofsd's arguments for a folder. Its log is off as far as that goes: a guest
// could make it grow. In the sandbox it has namespaces of its processes, mounts and networks.
func arguments(program, folder string) []string {
	if program == oldProgram {
		return []string{
			"virtiofsd", fmt.Sprintf("--fd=%d", socketFD), "--rlimit-nofile=0",
			"-o", "source=" + folder, "-o", "sandbox=namespace", "-o", "cache=auto", "-o", "xattr", "-o", "log_level=err",
		}
	}
	return []string{
		"virtiofsd", fmt.Sprintf("--fd=%d", socketFD), "--rlimit-nofile=0",
		"--shared-dir=" + folder, "--sandbox=namespace", "--cache=auto", "--xattr", "--log-level=off",
	}
}

// process describes an owner's nth virtiofsd, as far as it takes to find and end it. No other process has
// the path of its mount on the command line.
func (s *Servers) process(id string, n int) supervise.Process {
	argument := "--shared-dir=" + s.path(id, n, "")
	if s.program() == oldProgram {
		argument = "source=" + s.path(id, n, "")
	}
	return supervise.Process{Name: "virtiofsd", PIDFile: s.path(id, n, ".pid"), Argument: argument, Grace: killAfter}
}

// program returns the first program that exists; "" if there is none.
func (s *Servers) program() string {
	for _, p := range s.programs {
		if _, err := exec.LookPath(p); err == nil {
			return p
		}
	}
	return ""
}

// serve starts an owner's nth virtiofsd.
func (s *Servers) serve(ctx context.Context, o Owner, n int, f Folder, started func(pid int) error) error {
	program := s.program()
	if program == "" {
		return fmt.Errorf("%w; install the package virtiofsd, or before Debian 13 qemu-system-common", ErrMissing)
	}
	if err := os.Mkdir(s.path(o.ID, n, ""), 0o755); err != nil {
		return err
	}
	tree, ids, err := openMount(f, privateIDs(o.Client), oneID(o.User))
	if err != nil {
		return err
	}
	defer tree.Close()
	socket, err := s.listen(ctx, o, n)
	if err != nil {
		return err
	}
	defer socket.Close()
	p := s.process(o.ID, n)
	pidFile, err := os.OpenFile(p.PIDFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make pid file of virtiofsd: %w", err)
	}
	defer pidFile.Close()
	p.Program, p.Args = s.stage[0], append(s.stage[1:len(s.stage):len(s.stage)], s.path(o.ID, n, ""), program)
	p.Files = []*os.File{socket, tree, pidFile}
	p.IDs, p.User = ids, &supervise.User{} // root there
	p.Namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC
	p.Log, p.Started = s.path(o.ID, n, ".log"), started
	p.Ready = func(pid int) (bool, error) {
		found, err := p.Find()
		return found == pid, err
	}
	if _, err := p.Start(ctx); err != nil {
		return fmt.Errorf("start virtiofsd: %w", err)
	}
	return nil
}

// listen makes the socket of an owner's nth folder, to which its client alone can connect.
func (s *Servers) listen(ctx context.Context, o Owner, n int) (*os.File, error) {
	path := s.Socket(o.ID, n)
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("make socket of a file system: %w", err)
	}
	defer l.Close()
	socket := l.(*net.UnixListener)
	socket.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(path, 0o600), os.Lchown(path, int(o.Client), int(o.Client))); err != nil {
		return nil, fmt.Errorf("make socket of a file system: %w", err)
	}
	return socket.File()
}

// FirstID and LastID bound the ids of user namespaces. They are above those of systemd, subuid, Kubernetes and, by default, VMs, and
// below 1 << 31, from where programs such as ps show negative ones. VMs whose users are less than
// ranges apart share no id.
const (
	FirstID = 0x72000000
	LastID  = 1<<31 - 1

	rangeSize = 1 << 16
	ranges    = (LastID + 1 - FirstID) / rangeSize
)

// privateIDs are the ids of the VM whose QEMU has a user.
func privateIDs(client uint32) syscall.SysProcIDMap {
	return syscall.SysProcIDMap{HostID: FirstID + int(client%ranges)*rangeSize, Size: rangeSize}
}

// oneID makes root of the namespace one user of the node.
func oneID(user uint32) syscall.SysProcIDMap {
	return syscall.SysProcIDMap{HostID: int(user), Size: 1}
}
