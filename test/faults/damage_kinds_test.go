//go:build faults

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// damage is what happens to a file or a folder of the node while the daemon that reads it does not run. do returns what
// ends the fault, also with an error. whole is the file's content, and older that of an earlier time.
type damage struct {
	name string
	do   func(ctx context.Context, path string, whole, older []byte) (undo func(context.Context) error, err error)
}

// rewritten is a damage that changes a file's content.
func rewritten(name string, change func(path string, whole, older []byte) error) damage {
	return damage{name, func(_ context.Context, path string, whole, older []byte) (func(context.Context) error, error) {
		undo := func(context.Context) error {
			err := os.WriteFile(outside(path), whole, 0o600)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // of a VM that did not run, and that is removed with its folder
			}
			return err
		}
		return undo, change(outside(path), whole, older)
	}}
}

// fileDamages happen to files that a node keeps.
var fileDamages = []damage{
	rewritten("missing", func(path string, _, _ []byte) error { return os.Remove(path) }),
	rewritten("empty", func(path string, _, _ []byte) error { return os.Truncate(path, 0) }),
	rewritten("truncated", func(path string, whole, _ []byte) error { return os.Truncate(path, int64(len(whole)/2)) }),
	rewritten("garbage", func(path string, _, _ []byte) error { return os.WriteFile(path, []byte("\x00\xff garbage"), 0o600) }),
	rewritten("newer", func(path string, whole, _ []byte) error {
		return os.WriteFile(path, bytes.Replace(whole, []byte(`"version": `), []byte(`"version": 9`), 1), 0o600)
	}),
	rewritten("older", func(path string, _, older []byte) error { return os.WriteFile(path, older, 0o600) }),
	{"read-only", func(ctx context.Context, path string, _, _ []byte) (func(context.Context) error, error) {
		undo := func(ctx context.Context) error { return inside(ctx, "umount", "-l", path) }
		err := inside(ctx, "mount", "--bind", path, path)
		if err == nil {
			err = inside(ctx, "mount", "-o", "remount,bind,ro", path)
		}
		return undo, err
	}},
	{"unreadable", unreadable},
}

// folderDamages happen to folders.
var folderDamages = []damage{
	{"empty", func(ctx context.Context, path string, _, _ []byte) (func(context.Context) error, error) {
		return func(ctx context.Context) error { return inside(ctx, "umount", "-l", path) },
			inside(ctx, "mount", "-t", "tmpfs", "-o", "mode=0711", "nodevirt", path)
	}},
	{"read-only", func(ctx context.Context, path string, _, _ []byte) (func(context.Context) error, error) {
		undo := func(ctx context.Context) error { return inside(ctx, "umount", "-l", path) }
		err := inside(ctx, "mount", "--bind", path, path)
		if err == nil {
			err = inside(ctx, "mount", "-o", "remount,bind,ro", path)
		}
		return undo, err
	}},
}

// fullDamages happen to the shim's folder, which has a separate file system.
var fullDamages = []damage{
	{"full", func(context.Context, string, []byte, []byte) (func(context.Context) error, error) {
		return func(context.Context) error { return empty() }, fill("space", 0)
	}},
	{"without inodes", func(context.Context, string, []byte, []byte) (func(context.Context) error, error) {
		return func(context.Context) error { return empty() }, fill("inodes", 0)
	}},
}

// lostSockets are the folders in /run/nodevirt of what processes listen on. The node's CRI socket and locks are beside
// them.
var lostSockets = damage{"missing", func(ctx context.Context, path string, _, _ []byte) (func(context.Context) error, error) {
	const move = `cd "$0" && for d in consoles agents displays migrations; do [ ! -d $d$1 ] || { rm -rf $d$2; mv $d$1 $d$2; }; done`
	return func(ctx context.Context) error { return inside(ctx, "sh", "-c", move, path, ".away", "") },
		inside(ctx, "sh", "-c", move, path, "", ".away")
}}

// outside is the path by which the machine sees a file of the node.
func outside(path string) string { return fmt.Sprintf("/proc/%d/root%s", suite.PID(), path) }

// inside runs a command on the node.
func inside(ctx context.Context, name string, args ...string) error {
	_, err := suite.Output(ctx, name, args...)
	return err
}

// failing is the block driver that fails each read and each write with EIO.
const failing = `{"driver":"blkdebug","node-name":"failing","image":"file",` +
	`"inject-error":[{"event":"none","iotype":"read","errno":5},{"event":"none","iotype":"write","errno":5}]}`

// unreadable has each read and each write of a file fail with EIO, as a disk that fails does: a process shows another
// file in its place.
func unreadable(ctx context.Context, path string, _, _ []byte) (undo func(context.Context) error, err error) {
	dir, err := os.MkdirTemp(suite.Dir(), "failing")
	if err != nil {
		return nil, err
	}
	pidFile := filepath.Join(dir, "pid")
	undo = func(ctx context.Context) error {
		err := inside(ctx, "sh", "-c", `pid=$(cat "$0") && kill $pid && for i in $(seq 50); do kill -0 $pid 2> /dev/null || break; sleep 0.1; done`, pidFile)
		return errors.Join(err, os.RemoveAll(dir))
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		return undo, err
	}
	err = inside(ctx, "qemu-storage-daemon", "--daemonize", "--pidfile", pidFile,
		"--blockdev", fmt.Sprintf(`{"driver":"file","node-name":"file","filename":%q}`, file), "--blockdev", failing,
		"--export", "type=fuse,id=failing,node-name=failing,writable=on,allow-other=auto,mountpoint="+path)
	if err != nil {
		return undo, err
	}
	if _, err := suite.Output(ctx, "cat", path); err == nil || !strings.Contains(err.Error(), "Input/output error") {
		return undo, fmt.Errorf("%s can be read, or fails otherwise: %w", path, err)
	}
	return undo, nil
}
