package doctor

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/config"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// withoutISCSI is a finding that is a failure where each VM would need it.
func withoutISCSI(c config.Config, remedy, detail string, err error) Finding {
	if c.Disks.Mode == string(vmspec.ModeISCSI) {
		return fail(remedy, "%s: %v", detail, err)
	}
	return warn(remedy, "pods can't have disks over iSCSI: %s: %v", detail, err)
}

// checkTgtd asks the shim's tgtd.
func checkTgtd(ctx context.Context, c config.Config) Finding {
	const remedy = "install tgt (Debian) or scsi-target-utils (Fedora), then start deploy/systemd/nodevirt-tgtd.service; " +
		"the shim's iscsi.socket is its TGT_IPC_SOCKET"
	portal, err := c.ISCSI.Portal()
	if err != nil {
		return withoutISCSI(c, "mend the shim's config", "config", err)
	}
	targets, err := iscsi.New(iscsi.Options{Socket: c.ISCSI.Socket, Portal: portal, Logger: slog.New(slog.DiscardHandler)}).List(ctx)
	if err != nil {
		return withoutISCSI(c, remedy, "no answer", err)
	}
	return ok("answers, and serves %d disks at %s", len(targets), portal)
}

// checkInitiator has QEMU's block layer look at a port where nothing listens: without its initiator it
// does not know the protocol.
func checkInitiator(ctx context.Context, c config.Config) Finding {
	cmd := exec.CommandContext(ctx, c.Tools.QemuImg, "info", "iscsi://127.0.0.1:1/iqn.none/1")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil && bytes.Contains(out, []byte("Unknown protocol")) {
		return withoutISCSI(c, "install qemu-block-extra (Debian) or qemu-block-iscsi (Fedora)", "QEMU has no initiator", err)
	}
	return ok("there")
}
