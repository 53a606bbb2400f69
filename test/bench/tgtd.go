package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/share"
)

// Addresses of a second tgtd, beside the node's.
const (
	aloneSocket = "/run/nodevirt-tgtd/alone"
	alonePortal = "127.0.0.1:3270"
	aloneTarget = "iqn.2026-11.example:alone"
)

// tgtdAlone starts a second tgtd, with its defaults, that serves a raw file to all initiators at
// alonePortal. The function returned ends it.
func (r *rig) tgtdAlone(ctx context.Context, path string) (stop func(), err error) {
	env := "TGT_IPC_SOCKET=" + aloneSocket
	daemon, err := r.prepare(ctx, place{name: "tgtd"}, "env", env, "tgtd", "-f", "--iscsi", "portal="+alonePortal)
	if err != nil {
		return nil, err
	}
	if err := daemon.release(); err != nil {
		daemon.end()
		return nil, fmt.Errorf("start tgtd: %w", err)
	}
	tgtadm := func(args ...string) error {
		_, err := r.Output(ctx, "env", append([]string{env, "tgtadm", "--lld", "iscsi"}, args...)...)
		return err
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err = tgtadm("--mode", "sys", "--op", "show"); err == nil {
			break
		}
		if time.Since(begun) > 10*time.Second {
			daemon.end()
			return nil, fmt.Errorf("wait for tgtd: %w", err)
		}
	}
	for _, args := range [][]string{
		{"--mode", "target", "--op", "new", "--tid", "1", "--targetname", aloneTarget},
		{"--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "--backing-store", path},
		{"--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL"},
	} {
		if err := tgtadm(args...); err != nil {
			daemon.end()
			return nil, err
		}
	}
	return daemon.end, nil
}

// export has the shim serve an image's disk over iSCSI, and returns how qemu-img names it. The name
// holds the password, which is thus on a command line: it protects nothing here.
func (r *rig) export(ctx context.Context, name, image string) (options string, err error) {
	disks := share.NewClient(filepath.Join(r.Dir(), "run/nodevirt/disks.sock"))
	c, err := disks.Export(ctx, disk.ExportRequest{Name: name, Image: image})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s,file.initiator-name=%s,file.user=%s,file.password=%s",
		overTCP(c.Portal, c.Target, c.LUN), c.Initiator, c.User, c.Password), nil
}

// overTCP is how qemu-img names a raw disk over iSCSI.
func overTCP(portal, target string, lun int) string {
	return fmt.Sprintf("driver=raw,file.driver=iscsi,file.transport=tcp,file.portal=%s,file.target=%s,file.lun=%d", portal, target, lun)
}
