package shim

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/netsetup/reach"
	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/hooks"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
)

// newConverter finds what converts images' disks.
func newConverter(c config.Config) (expand.Tool, error) {
	qemuImg, err := exec.LookPath(c.Tools.QemuImg)
	if err != nil {
		return expand.Tool{}, fmt.Errorf("tools.qemu_img: %w; install qemu-utils", err)
	}
	qemuNBD, err := exec.LookPath(filepath.Join(filepath.Dir(qemuImg), "qemu-nbd"))
	if err != nil {
		return expand.Tool{}, fmt.Errorf("find qemu-nbd beside qemu-img: %w; install qemu-utils", err)
	}
	self, err := os.Executable()
	if err != nil {
		return expand.Tool{}, fmt.Errorf("find this program: %w", err)
	}
	dir := filepath.Join(c.Run, "convert")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return expand.Tool{}, fmt.Errorf("create a folder for conversions: %w", err)
	}
	return expand.Tool{QemuImg: qemuImg, QemuNBD: qemuNBD, Stage: []string{filepath.Join(filepath.Dir(self), viewProgram), "convert"}, Dir: dir}, nil
}

// viewProgram is the program nodevirt-view, which is in the folder of this one.
const viewProgram = "nodevirt-view"

// newDisks creates the parts that deal with VMs' disks. tgtd and qemu-storage-daemon need not
// exist until a VM uses them.
func newDisks(c config.Config, tool expand.Tool, log *slog.Logger, u *imageunpack.Unpacker, e *expand.Expander, r *record.Store, s *domain.Secrets, h *hooks.Hooks) (*disk.Disks, error) {
	portal, err := c.ISCSI.Portal()
	if err != nil {
		return nil, err
	}
	key, err := iscsi.OpenKey(filepath.Join(c.Root, "iscsi.key"))
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{filepath.Join(c.Root, "exports"), filepath.Join(c.Root, "imports"), filepath.Join(c.Run, "views")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create a folder for disks: %w", err)
		}
	}
	storageDaemon, err := exec.LookPath(c.Tools.StorageDaemon)
	if err != nil {
		storageDaemon = c.Tools.StorageDaemon // creating a view reports that it is missing
	}
	first, last := c.VM.UIDBase, c.VM.UIDBase+c.VM.UIDCount-1
	return disk.New(disk.Options{
		Unpacker: u, Expander: e, Tool: tool, Groups: resources.Groups{Overhead: int64(c.VM.OverheadMemory)}, Folder: r.ContainerDir, Shares: c.Root,
		Network: c.Disks.Network, CephConfig: filepath.Join(c.Run, "ceph", "ceph.conf"), CephNetworks: c.Disks.CephNetworks,
		FirstUID: first, LastUID: last,
		Reach: reach.New(reach.Options{FirstUID: first, LastUID: last, CheckEvery: 30 * time.Second, Networks: c.Disks.CephNetworks, Logger: log}),
		ISCSI: disk.ISCSI{
			Daemon: iscsi.New(iscsi.Options{Socket: c.ISCSI.Socket, Portal: portal, Logger: log}),
			Key:    key, Secrets: s, Patience: time.Duration(c.ISCSI.Timeout), Logger: log,
		},
		Hooks: h,
		Views: rawview.Options{
			Dir: filepath.Join(c.Run, "views"), StorageDaemon: storageDaemon, Stage: []string{tool.Stage[0]}, Logger: log,
		},
	}), nil
}
