package rawview

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/imageunpack/confine"
	"github.com/nodevirt/nodevirt/shim/supervise"
)

// The descriptors that the process inherits.
const (
	overlayFD = 3
	baseFD    = 4
	deviceFD  = 5
)

// shown is the path of the raw file in the process's own file tree.
const shown = "/dev/disk"

// newStage returns the input of [Enter]: the work between the start of the process and
// qemu-storage-daemon.
func newStage(view View, base *os.File, program string) (confine.Program, error) {
	private, err := confine.Private(base)
	if err != nil {
		return confine.Program{}, err
	}
	args, err := arguments(view)
	return confine.Program{
		Path: program, Args: append([]string{"qemu-storage-daemon"}, args...),
		UID: view.UID, GID: view.GID, ReadAll: private,
		Descriptors: []int{overlayFD, baseFD, deviceFD},
	}, err
}

// arguments returns qemu-storage-daemon's arguments. They name each layer's format, so that none is
// probed. With write-through, qemu-storage-daemon holds no written data itself: after it was killed
// and started again, the raw file has the same content, on which its users rely.
func arguments(view View) ([]string, error) {
	type object = map[string]any
	file := func(fd int) object {
		return object{"driver": "file", "filename": fmt.Sprintf("/proc/self/fd/%d", fd)}
	}
	top := file(overlayFD)
	top["discard"] = "unmap"
	if !view.Durable {
		top["cache"] = object{"no-flush": true}
	}
	disk, err := json.Marshal(object{
		"driver": "qcow2", "node-name": "disk", "discard": "unmap", "file": top,
		"backing": object{"driver": view.BaseFormat, "read-only": true, "file": object{
			"driver": "file", "read-only": true, "filename": file(baseFD)["filename"],
		}},
	})
	if err != nil {
		return nil, err
	}
	export, err := json.Marshal(object{
		"type": "fuse", "id": "disk", "node-name": "disk", "writable": true, "writethrough": true,
		// For libfuse this name means a descriptor whose file system is mounted already.
		"mountpoint": fmt.Sprintf("/dev/fd/%d", deviceFD),
	})
	return []string{"--blockdev", string(disk), "--export", string(export)}, err
}

// Enter turns the calling process into the process of a view, whose folder is dir. It returns only if
// that fails.
func Enter(dir string) error {
	var p confine.Program
	text, err := os.ReadFile(filepath.Join(dir, stageName))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err == nil {
		err = supervise.WritePID(filepath.Join(dir, pidName))
	}
	if err != nil {
		return fmt.Errorf("start the view in %s: %w", dir, err)
	}
	return p.Execute(filepath.Join(dir, rootName), func(root string) error { return mountDisk(root, p.UID, p.GID) })
}

// mountDisk mounts the raw file, which belongs to a user, in the file tree of the process.
func mountDisk(root string, uid, gid uint32) error {
	if err := os.Mkdir(filepath.Join(root, "dev/fd"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{fmt.Sprintf("dev/fd/%d", deviceFD), shown} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("fd=%d,rootmode=100000,user_id=%d,group_id=%d,allow_other,default_permissions", deviceFD, uid, gid)
	err := unix.Mount("nodevirt", filepath.Join(root, shown), "fuse", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options)
	if err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	return nil
}
