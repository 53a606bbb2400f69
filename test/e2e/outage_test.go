//go:build slow || ceph

package e2e

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestISCSITargetAway is not parallel: all tests share tgtd. While it is away, or hangs, no guest hangs
// with it: it has errors of its disks or is stopped, as their error policies say, and goes on when tgtd is
// back.
func TestISCSITargetAway(t *testing.T) {
	path, _ := dataDisk(t, "away.img", "away ", mebibyte)
	id := pushed(t, "data-away:1", path, images.DiskOptions{})
	c := vmPod(t, annotated(map[string]string{
		"nodevirt.io/disk-mode": "block=iscsi,scsi=iscsi,deaf=iscsi,stop=iscsi",
		"nodevirt.io/vmi": `{
			"domain": {"devices": {"disks": [
				{"name": "root", "disk": {"bus": "virtio"}},
				{"name": "block", "disk": {"bus": "virtio"}, "errorPolicy": "report"},
				{"name": "deaf", "disk": {"bus": "virtio"}, "errorPolicy": "ignore"},
				{"name": "scsi", "disk": {"bus": "scsi"}, "errorPolicy": "report"},
				{"name": "stop", "disk": {"bus": "virtio"}}
			]}},
			"volumes": [
				{"name": "root", "containerDisk": {"image": "r"}}, {"name": "block", "containerDisk": {"image": "b"}},
				{"name": "deaf", "containerDisk": {"image": "d"}}, {"name": "scsi", "containerDisk": {"image": "s"}},
				{"name": "stop", "containerDisk": {"image": "t"}}
			]}`,
	})).vm(suite.agent, mounts("/v/block", id, "/v/deaf", id, "/v/scsi", id, "/v/stop", id)).start().up()
	c.agentIs(agent.Present)
	for _, cut := range []struct {
		name      string
		cut, mend func(context.Context) error
	}{
		{"it has ended",
			func(ctx context.Context) error { return suite.Kill(ctx, node.Tgtd, syscall.SIGKILL) },
			func(ctx context.Context) error { return suite.Resume(ctx, node.Tgtd) }},
		{"it hangs",
			func(ctx context.Context) error { return signalDaemon(ctx, node.Tgtd, syscall.SIGSTOP) },
			func(ctx context.Context) error { return signalDaemon(ctx, node.Tgtd, syscall.SIGCONT) }},
	} {
		t.Run(cut.name, func(t *testing.T) {
			assert.NilError(t, cut.cut(t.Context()))
			mended := false
			t.Cleanup(func() {
				if !mended {
					_ = cut.mend(context.WithoutCancel(t.Context()))
				}
			})
			for disk, want := range map[string]string{"vdb": "failed", "sda": "failed", "vdc": "done"} {
				if got := c.tries("dd if=/dev/" + disk + " of=/dev/null bs=64k count=1 iflag=direct"); got != want {
					t.Errorf("a read of %s while the target is away: %s; want %s", disk, got, want)
				}
				if got := c.tries("dd if=/dev/zero of=/dev/" + disk + " bs=64k count=1 conv=fsync"); got != want {
					t.Errorf("a write of %s while the target is away: %s; want %s", disk, got, want)
				}
			}
			// The guest may be stopped before its agent has answered.
			_ = c.tries("(dd if=/dev/vdd of=/dev/null bs=64k count=1 iflag=direct && touch /tmp/read) >/dev/null 2>&1 &")
			wait.Until(t, "the guest is stopped", func() bool { return c.vmInfo().Paused == condition.ReasonPausedIOError })
			name := c.info().VM.Domain.Name
			wait.Until(t, "virsh tells of it", func() bool { // it is tried now and then whether it can go on
				return strings.Contains(inNode(t, "virsh", "domstate", "--reason", name), "paused (I/O error)")
			})
			assert.NilError(t, cut.mend(t.Context()))
			mended = true
			wait.Until(t, "the guest that was stopped goes on", func() bool {
				return c.vmInfo().Paused == "" && c.tries("test -e /tmp/read && rm /tmp/read") == "done"
			})
			for _, disk := range []string{"vdb", "sda", "vdc"} {
				wait.Until(t, disk+" is there again", func() bool {
					return c.tries("echo mine | dd of=/dev/"+disk+" conv=notrunc,fsync && dd if=/dev/"+disk+" bs=4k count=1 iflag=direct | grep -q mine") == "done"
				})
			}
		})
	}
	if rules := inNode(t, "nft", "list", "tables"); strings.Contains(rules, "nodevirt-iscsi") {
		t.Errorf("left: %s", rules)
	}
}

// signalDaemon sends a signal, which does not end it, to a daemon of the node.
func signalDaemon(ctx context.Context, name string, sig syscall.Signal) error {
	all, err := suite.Components()
	for _, s := range all {
		if s.Name == name && !s.Ended {
			_, err = suite.Output(ctx, "kill", "-"+strconv.Itoa(int(sig)), strconv.Itoa(s.PID))
		}
	}
	return err
}

// tries runs a line in the guest, and returns whether it was done or failed, or the error of the guest agent.
func (c *container) tries(line string) string {
	c.t.Helper()
	r, err := c.tryExec(120, "sh", "-c", line)
	switch {
	case err != nil:
		return err.Error()
	case r.ExitCode != 0:
		return "failed"
	}
	return "done"
}
