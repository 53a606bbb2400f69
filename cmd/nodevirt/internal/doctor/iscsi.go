package doctor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// withoutISCSI returns a failure if iSCSI is the default for disks, and a warning otherwise.
func withoutISCSI(c config.Config, remedy, detail string, err error) Finding {
	if c.Disks.Mode == string(vmspec.ModeISCSI) {
		return fail(remedy, "%s: %v", detail, err)
	}
	return warn(remedy, "pods cannot use disks over iSCSI: %s: %v", detail, err)
}

// checkTgtd asks the shim's tgtd.
func checkTgtd(ctx context.Context, c config.Config) Finding {
	const remedy = "install tgt (Debian) or scsi-target-utils (Fedora), then run nodevirt node install, or systemctl restart nodevirt-tgtd on a node that has it; " +
		"iscsi.socket in the shim's config must be its TGT_IPC_SOCKET"
	portal, err := c.ISCSI.Portal()
	if err != nil {
		return withoutISCSI(c, "correct the shim's config", "config", err)
	}
	targets, err := iscsi.New(iscsi.Options{Socket: c.ISCSI.Socket, Portal: portal, Logger: slog.New(slog.DiscardHandler)}).List(ctx)
	if err != nil {
		return withoutISCSI(c, remedy, "no answer", err)
	}
	if len(targets) == 0 {
		if err := canListen(ctx, portal); err != nil {
			return withoutISCSI(c, "stop the other program, such as Debian's own tgtd: systemctl disable --now tgt; or set iscsi.port in the shim's config",
				"the portal is taken", err)
		}
	}
	return ok("answers, and serves %d disks at %s", len(targets), portal)
}

// canListen tries to listen where tgtd will with the first disk. Debian starts another tgtd, on all
// addresses, when the package tgt is installed.
func canListen(ctx context.Context, portal netip.AddrPort) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", portal.String())
	if err != nil {
		return err
	}
	return l.Close()
}

// checkInitiator has QEMU's block layer open a disk at a port where nothing listens. Without the iSCSI
// module it does not know the protocol.
func checkInitiator(ctx context.Context, c config.Config) Finding {
	cmd := exec.CommandContext(ctx, c.Tools.QemuImg, "info", "iscsi://127.0.0.1:1/iqn.none/1")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return initiator(c, string(out), err)
}

// initiator reads what qemu-img answered. The answer of the module names iSCSI.
func initiator(c config.Config, answer string, err error) Finding {
	const missing = "QEMU has no iSCSI initiator"
	switch {
	case strings.Contains(answer, "Unknown protocol"), strings.Contains(answer, "Unknown driver"):
		return withoutISCSI(c, "install qemu-block-extra (Debian) or qemu-block-iscsi (Fedora)", missing, err)
	case strings.Contains(answer, "iSCSI: "):
		return ok("QEMU has an iSCSI initiator")
	case err == nil:
		err = errors.New("qemu-img opened a disk that does not exist")
	}
	return withoutISCSI(c, "repair what the qemu-img check says", "cannot ask qemu-img", err)
}

// checkStorageDaemon looks for the program that shows overlays as raw files to tgtd.
func checkStorageDaemon(ctx context.Context, c config.Config) Finding {
	text, err := version(ctx, c.Tools.StorageDaemon)
	if err != nil {
		return withoutISCSI(c, "install qemu-system-common (Debian) or qemu-img (Fedora), or set tools.storage_daemon in the shim's config",
			"qemu-storage-daemon", err)
	}
	return ok("%s", text)
}
