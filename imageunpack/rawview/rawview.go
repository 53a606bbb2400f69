// Package rawview shows a qcow2 overlay, with the image's disk below it, as a raw file that other
// programs of the node can read and write. Nothing is copied.
//
// It owns the processes that do so: one qemu-storage-daemon for each disk, with a FUSE file system
// of one file. They outlive the caller and are found again. What is in the files below, and who
// uses the raw file, is the caller's business.
//
// qemu-storage-daemon parses what a guest writes into its overlay. So it runs as a user of the
// machine's own, in a file tree that holds its program and the file that it shows, and nothing of
// the node. It is handed its files, and the FUSE device with the file system mounted already, as
// descriptors; the mount is in its own mount namespace, where it is gone with the process, and
// others reach it by /proc.
package rawview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"
)

// ErrNoProgram says that the node has no qemu-storage-daemon.
var ErrNoProgram = errdefs.ErrFailedPrecondition.WithMessage("qemu-storage-daemon is not on this node: install it (Debian's package qemu-system-common), " +
	"or set tools.storage_daemon in the config of nodevirt-shim")

// ErrNoStage says that the program that calls [Enter] is not where it should be.
var ErrNoStage = errdefs.ErrFailedPrecondition.WithMessage("a program of nodevirt's own is missing: install it beside nodevirt-shim")

// Options say with what views are made.
type Options struct {
	// Dir holds a folder for each view; it need not outlive a reboot.
	Dir string
	// StorageDaemon is the path of qemu-storage-daemon.
	StorageDaemon string
	// Stage is a command, without its last argument, that calls [Enter] with that. What it takes to
	// start is a part of what each view takes.
	Stage []string
	// Ended is told of a view whose process ended though nobody hid it. It must not block.
	Ended  func(id string)
	Logger *slog.Logger
}

// Views shows disks. Its methods may be called at the same time for different views.
type Views struct {
	opts Options
	mu   sync.Mutex
	// watched are the processes whose end is waited for, by view.
	watched map[string]int
}

// New returns Views.
func New(o Options) *Views { return &Views{opts: o, watched: map[string]int{}} }

// View is a disk to be shown.
type View struct {
	// ID names the view: letters, digits, dots and dashes.
	ID string
	// Overlay is the path of the qcow2 file that takes writes. It becomes UID's.
	Overlay string
	// BaseFormat is the format of what lies below: qcow2 or raw.
	BaseFormat string
	// UID and GID are what the process runs as.
	UID, GID uint32
	// Durable has a flush of the raw file reach the node's disk. Without it a flush reaches the
	// overlay's file alone, which is enough for what does not outlive a reboot. What was written
	// outlives the process in both.
	Durable bool
	// Started, if not nil, is told of the process as soon as there is one, while it makes itself ready.
	// An error of its has Show fail.
	Started func(pid int) error
}

var ids = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,127}$`)

// Show starts a view's process and returns its process id when the raw file, [Path], can be used.
// One that runs is left alone. Base, which is read alone, stays the caller's.
func (v *Views) Show(ctx context.Context, view View, base *os.File) (pid int, err error) {
	if !ids.MatchString(view.ID) {
		return 0, fmt.Errorf("show disk %q: not a name of a view", view.ID)
	}
	if pid, err := v.Process(view.ID); err != nil || pid != 0 { //nolint:contextcheck // see watch
		return pid, err
	}
	pid, err = v.start(ctx, view, base)
	if err != nil {
		return 0, fmt.Errorf("show %s as a raw file: %w", view.Overlay, errors.Join(err, v.Hide(context.WithoutCancel(ctx), view.ID)))
	}
	return pid, nil
}

// Path is where the node's programs find the raw file of a view's process.
func Path(pid int) string { return fmt.Sprintf("/proc/%d/root%s", pid, shown) }

func (v *Views) start(ctx context.Context, view View, base *os.File) (pid int, err error) {
	if _, err := exec.LookPath(v.opts.StorageDaemon); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	if _, err := exec.LookPath(v.opts.Stage[0]); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoStage, err)
	}
	dir := v.folder(view.ID)
	if err := os.MkdirAll(filepath.Join(dir, rootName), 0o700); err != nil {
		return 0, err
	}
	overlay, err := os.OpenFile(view.Overlay, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer overlay.Close()
	if err := overlay.Chown(int(view.UID), int(view.GID)); err != nil {
		return 0, err
	}
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return 0, fmt.Errorf("%w: load the kernel's module fuse", err)
	}
	defer device.Close()
	stage, err := newStage(view, base, v.opts.StorageDaemon)
	if err != nil {
		return 0, err
	}
	text, err := json.Marshal(stage)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, stageName), text, 0o600)
	}
	if err != nil {
		return 0, err
	}
	p := v.process(view.ID)
	p.Program, p.Args = v.opts.Stage[0], append(v.opts.Stage[1:len(v.opts.Stage):len(v.opts.Stage)], dir)
	p.Files = []*os.File{overlay, base, device} // 3, 4, 5
	p.Namespaces = syscall.CLONE_NEWNS
	p.Log = filepath.Join(dir, logName)
	p.Started = func(pid int) error {
		device.Close() // the process has its own, the last: when it ends, a call on the file fails
		if view.Started == nil {
			return nil
		}
		return view.Started(pid)
	}
	p.Ready = func(pid int) (bool, error) {
		// Before the process has its own root, this is a path of the node's that isn't there.
		info, err := statWithin(ctx, Path(pid))
		return err == nil && info.Size() > 0, nil //nolint:nilerr // not there yet
	}
	if pid, err = p.Start(ctx); err != nil {
		return 0, err
	}
	v.watch(view.ID, pid) //nolint:contextcheck // it outlives this call
	return pid, nil
}

// statWithin is os.Stat of a file whose file system may not answer.
func statWithin(ctx context.Context, path string) (fs.FileInfo, error) {
	type result struct {
		info fs.FileInfo
		err  error
	}
	done := make(chan result, 1)
	go func() {
		info, err := os.Stat(path)
		done <- result{info, err}
	}()
	select {
	case r := <-done:
		return r.info, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (v *Views) folder(id string) string { return filepath.Join(v.opts.Dir, id) }

// The files in a view's folder.
const (
	stageName = "stage.json" // what [Enter] is to do
	pidName   = "pid"
	logName   = "log"
	rootName  = "root" // where the process's file tree is mounted, in its own namespace
)
