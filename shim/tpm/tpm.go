// Package tpm runs the TPMs of VMs: a swtpm for each, which emulates a TPM 2.0.
//
// It owns the processes, their sockets and their state, which is in a folder that a
// reboot empties and which ends with the VM, or in a folder of the caller's, which stays. QEMU is a TPM's only client. It carries the
// state to a new TPM on another node within the stream of a live migration. When TPMs
// start and end is package vm's.
package tpm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/supervise"
)

// ErrMissing says that the node has no swtpm.
var ErrMissing = errdefs.ErrFailedPrecondition.WithMessage("this node has no swtpm")

// Owner says whose a TPM is.
type Owner struct {
	// ID is the container's, and part of the TPM's paths.
	ID string
	// UID is the user, and the group, of swtpm alone.
	UID uint32
	// Client is the user of QEMU, which may connect.
	Client uint32
	// State is a folder of UID's for the state, which outlives the TPM; nil for none. Lock is a file that
	// the TPM has open as long as it runs. Both stay the caller's.
	State, Lock *os.File
	// Arrives says that the state comes in QEMU's stream. Until [TPMs.Keep], the TPM has it in a folder
	// that ends with the TPM.
	Arrives bool
}

// TPMs are the TPMs of one node. Its methods may be called at the same time for
// different owners.
type TPMs struct {
	program, dir string
}

// New returns the TPMs below a folder, which it creates and which must be shorter than
// a socket's path. Program is swtpm's path, or its name in PATH.
func New(program, dir string) (*TPMs, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("create the folder of TPMs: %w", err)
	}
	return &TPMs{program: program, dir: dir}, nil
}

// Socket returns the path of the socket through which QEMU controls a TPM.
func (t *TPMs) Socket(id string) string { return filepath.Join(t.folder(id), "socket") }

func (t *TPMs) folder(id string) string { return filepath.Join(t.dir, id) }

// stateName is the name in a TPM's folder of its state, and arrivedName that of a state which came and whose
// owner's folder does not have it yet.
const stateName, arrivedName = "state", "arrived"

// killAfter is how long swtpm has to end by itself: it has nothing to save.
const killAfter = 2 * time.Second

// maxFile bounds, in bytes, a file that swtpm writes. The state of a TPM has some 10 KiB.
const maxFile = 1 << 20

// The descriptors of swtpm: those of [supervise.Process] from 3 on.
const socketFD, pidFD, stateFD, lockFD = 3, 4, 5, 6

// kept is where the path of a persistent state leads: to the descriptor of its folder. The name of an
// owner's state leads swtpm to its own descriptor, since it may enter no folder above that state.
const kept = "/proc/self/fd/5" // stateFD

// emulator describes an owner's swtpm. No other process has the path of its state on the
// command line. It has no network, its files are bounded, and core dumps would have the
// guest's keys. Its log is off: a guest could make it grow.
func (t *TPMs) emulator(o Owner) supervise.Process {
	dir := t.folder(o.ID)
	state := "dir=" + filepath.Join(dir, stateName) + ",mode=0600"
	p := supervise.Process{
		Name: "swtpm", Program: "prlimit", // which becomes swtpm
		Args: []string{
			fmt.Sprintf("--fsize=%d", maxFile), "--core=0", "--", t.program, "socket", "--tpm2", "--tpmstate", state, "--ctrl", fmt.Sprintf("type=unixio,fd=%d", socketFD),
			"--pid", fmt.Sprintf("fd=%d", pidFD), "--log", "file=-",
		},
		User: &supervise.User{UID: o.UID, GID: o.UID}, Namespaces: unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		PIDFile: filepath.Join(dir, "pid"), Argument: state, Log: filepath.Join(dir, "log"), Grace: killAfter,
	}
	p.Ready = func(pid int) (bool, error) {
		found, err := p.Find()
		return found == pid, err
	}
	return p
}

// Start starts an owner's TPM and returns its process id when QEMU can connect. A TPM
// that runs stays. Started is called before that: it may move the process into a
// cgroup. The TPM outlives the caller. If Start fails, nothing is left.
func (t *TPMs) Start(ctx context.Context, o Owner, started func(pid int) error) (pid int, err error) {
	p := t.emulator(o)
	if pid, err := p.Find(); err != nil || pid != 0 {
		return pid, err
	}
	if _, err := exec.LookPath(t.program); err != nil {
		return 0, fmt.Errorf("%w: %w; install swtpm on it, or set tools.swtpm in the config of nodevirt-shim", ErrMissing, err)
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*killAfter)
			defer cancel()
			err = errors.Join(err, t.Remove(ctx, o.ID))
		}
	}()
	if err := t.makeFolders(o); err != nil {
		return 0, err
	}
	socket, err := t.listen(ctx, o)
	if err != nil {
		return 0, err
	}
	defer socket.Close()
	pidFile, err := os.OpenFile(p.PIDFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("make pid file of swtpm: %w", err)
	}
	defer pidFile.Close()
	p.Files = []*os.File{socket, pidFile}
	if o.State != nil {
		p.Files = append(p.Files, o.State, o.Lock) // by the order of their descriptors
	}
	p.Started = started
	if pid, err = p.Start(ctx); err != nil {
		return 0, fmt.Errorf("start swtpm: %w", err)
	}
	return pid, nil
}

// makeFolders makes an empty folder for an owner's TPM, and the state in it.
func (t *TPMs) makeFolders(o Owner) error {
	dir := t.folder(o.ID)
	state := filepath.Join(dir, stateName)
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.Mkdir(dir, 0o711)
	}
	switch {
	case err != nil:
	case o.State == nil:
		err = makeOwned(state, o.UID)
	case !o.Arrives:
		err = os.Symlink(kept, state)
	default:
		err = errors.Join(makeOwned(filepath.Join(dir, arrivedName), o.UID), os.Symlink(arrivedName, state))
	}
	if err != nil {
		return fmt.Errorf("make folder of a TPM: %w", err)
	}
	return nil
}

func makeOwned(dir string, uid uint32) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Lchown(dir, int(uid), int(uid))
}

// Keep has a TPM whose state arrived keep it in its owner's folder from now on. It calls adopt first, with the
// folder that has the state: nothing uses the TPM meanwhile. It does nothing for a TPM that does so, or
// that has no owner's folder.
func (t *TPMs) Keep(id string, adopt func(from string) error) error {
	dir := t.folder(id)
	state := filepath.Join(dir, stateName)
	if to, err := os.Readlink(state); err != nil || to != arrivedName {
		return ignoreAbsent(err)
	}
	if err := adopt(filepath.Join(dir, arrivedName)); err != nil {
		return err
	}
	next := state + ".new"
	err := ignoreAbsent(os.Remove(next))
	if err == nil {
		err = os.Symlink(kept, next)
	}
	if err == nil {
		err = os.Rename(next, state)
	}
	if err != nil {
		return fmt.Errorf("keep the state of a TPM: %w", err)
	}
	return os.RemoveAll(filepath.Join(dir, arrivedName))
}

// ignoreAbsent drops the errors of a path that does not exist, or is no link.
func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// PID returns the process id of a TPM; 0 if it does not run.
func (t *TPMs) PID(id string) (int, error) { return t.emulator(Owner{ID: id}).Find() }

// listen makes the socket of a TPM, to which its client alone can connect.
func (t *TPMs) listen(ctx context.Context, o Owner) (*os.File, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", t.Socket(o.ID))
	if err != nil {
		return nil, fmt.Errorf("make socket of a TPM: %w", err)
	}
	defer l.Close()
	socket := l.(*net.UnixListener)
	socket.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(t.Socket(o.ID), 0o600), os.Lchown(t.Socket(o.ID), int(o.Client), int(o.Client))); err != nil {
		return nil, fmt.Errorf("make socket of a TPM: %w", err)
	}
	return socket.File()
}

// Watch waits until a TPM has ended, or ctx has. The error is nil when the TPM has ended
// or did not run. Watch takes no thread while it waits.
func (t *TPMs) Watch(ctx context.Context, id string) error {
	p := t.emulator(Owner{ID: id})
	pid, err := p.Find()
	if err != nil || pid == 0 {
		return err
	}
	return p.Wait(ctx, pid)
}

// Remove ends a TPM and removes its state, unless that is its owner's. A missing TPM is no error.
func (t *TPMs) Remove(ctx context.Context, id string) error {
	if err := t.emulator(Owner{ID: id}).End(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(t.folder(id)); err != nil {
		return fmt.Errorf("remove a TPM: %w", err)
	}
	return nil
}

// Sweep removes the TPMs whose owners are not known.
func (t *TPMs) Sweep(ctx context.Context, known func(id string) bool) error {
	entries, err := os.ReadDir(t.dir)
	errs := []error{err}
	for _, e := range entries {
		if !known(e.Name()) {
			errs = append(errs, t.Remove(ctx, e.Name()))
		}
	}
	return errors.Join(errs...)
}
