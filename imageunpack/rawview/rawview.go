// Package rawview presents a qcow2 overlay and its backing file as a raw file that other programs of
// the node can read and write, without a copy.
//
// It owns one process for each view: a qemu-storage-daemon with a FUSE file system of one file, which
// outlives the caller (see package supervise). It leaves the content of the overlay and the users of
// the raw file to its caller.
//
// qemu-storage-daemon parses data that a guest wrote into its overlay. So each process runs as its
// VM's user, in a file tree with its program and the raw file, and no other files of the node. It
// inherits its files, and the FUSE device with the file system already mounted, as descriptors. The
// mount is in the process's own mount namespace and ends with the process. Other programs reach it
// through /proc.
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

// ErrNoProgram means that the node has no qemu-storage-daemon.
var ErrNoProgram = errdefs.ErrFailedPrecondition.WithMessage("qemu-storage-daemon is not on this node: install it (Debian's package qemu-system-common), " +
	"or set tools.storage_daemon in the config of nodevirt-shim")

// ErrNoStage means that the program that calls [Enter] is missing.
var ErrNoStage = errdefs.ErrFailedPrecondition.WithMessage("the program nodevirt-view is missing: install it in the folder of nodevirt-shim")

// Options are the settings of Views.
type Options struct {
	// Dir holds a folder for each view. It may be lost at a reboot.
	Dir string
	// StorageDaemon is the path of qemu-storage-daemon.
	StorageDaemon string
	// Stage is a command that calls [Enter] with its last argument, which Views adds. Its start adds
	// to the time that each view takes.
	Stage []string
	// Ended, if not nil, is called when the process of a view ends without [Views.Hide]. It must not
	// block.
	Ended  func(id string)
	Logger *slog.Logger
}

// Views starts and ends views. Its methods may be called at the same time for different views.
type Views struct {
	opts Options
	mu   sync.Mutex
	// watched are the processes that a goroutine waits for, by view.
	watched map[string]int
}

// New returns Views.
func New(o Options) *Views { return &Views{opts: o, watched: map[string]int{}} }

// View describes a view.
type View struct {
	// ID names the view: letters, digits, dots and dashes.
	ID string
	// Overlay is the path of the qcow2 file that takes writes. It becomes UID's.
	Overlay string
	// BaseFormat is the format of the backing file: qcow2 or raw.
	BaseFormat string
	// UID and GID are the user and the group of the process.
	UID, GID uint32
	// Durable makes a flush of the raw file reach the node's disk. Without it a flush reaches only
	// the overlay's file in memory, which is enough for data that may be lost at a reboot. Written
	// data outlive the process in both cases.
	Durable bool
	// Started, if not nil, is called with the id of the process as soon as it exists. An error makes
	// Show fail.
	Started func(pid int) error
}

var ids = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,127}$`)

// Show starts the process of a view and returns its id when the raw file, [Path], can be used. If the
// process runs already, Show returns its id. Base is only read and stays the caller's.
func (v *Views) Show(ctx context.Context, view View, base *os.File) (pid int, err error) {
	if !ids.MatchString(view.ID) {
		return 0, fmt.Errorf("show disk %q: not a valid name of a view", view.ID)
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

// Path returns the path at which the node's programs find the raw file of a view's process.
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
		return 0, fmt.Errorf("%w: load the kernel module fuse", err)
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
		device.Close() // now only the process has it open: when that ends, calls on the file fail
		if view.Started == nil {
			return nil
		}
		return view.Started(pid)
	}
	p.Ready = func(pid int) (bool, error) {
		// Until the process has its own root, this is a path on the node, which doesn't exist.
		info, err := statWithin(ctx, Path(pid))
		return err == nil && info.Size() > 0, nil
	}
	if pid, err = p.Start(ctx); err != nil {
		return 0, err
	}
	v.watch(view.ID, pid) //nolint:contextcheck // the watch outlives this call
	return pid, nil
}

// statWithin is os.Stat with a context, for a file system that may not answer.
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
	stageName = "stage.json" // the input of [Enter]
	pidName   = "pid"
	logName   = "log"
	rootName  = "root" // the mount point of the process's file tree, in its own namespace
)
