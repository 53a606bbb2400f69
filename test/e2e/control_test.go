package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/test/wait"
)

// control sends a control request to the VM, and returns the answer.
func (c *container) control(name string) []byte {
	c.t.Helper()
	r := c.exec("nodevirt.io/" + name)
	if r.ExitCode != 0 || len(r.Stderr) > 0 {
		c.t.Fatalf("control %s: code %d, %q", name, r.ExitCode, r.Stderr)
	}
	return r.Stdout
}

func (c *container) controlInto(name string, into any) {
	c.t.Helper()
	assert.NilError(c.t, json.Unmarshal(c.control(name), into))
}

func TestMachineControls(t *testing.T) {
	t.Parallel()
	c := vmWithAgent(t)
	c.control("ping")
	want := c.guest()

	var info kubevirtv1.VirtualMachineInstanceGuestAgentInfo
	c.controlInto("guest-info", &info)
	if info.Hostname != want.Hostname || info.GAVersion == "" || info.OS.KernelRelease != want.Kernel {
		t.Errorf("the reported guest is %+v, and the guest says %+v", info, want)
	}
	if !slices.Contains(info.SupportedCommands, kubevirtv1.GuestAgentCommandInfo{Name: "guest-ping", Enabled: true}) {
		t.Errorf("the reported agent commands are %v", info.SupportedCommands)
	}
	var users kubevirtv1.VirtualMachineInstanceGuestOSUserList
	c.controlInto("users", &users)
	if users.Items == nil {
		t.Error("no list of users")
	}
	c.page("/cgi-bin/disk") // mounts it
	var mounted kubevirtv1.VirtualMachineInstanceFileSystemList
	c.controlInto("filesystems", &mounted)
	if !slices.ContainsFunc(mounted.Items, func(f kubevirtv1.VirtualMachineInstanceFileSystem) bool {
		return f.MountPoint == "/disk" && f.FileSystemType == "vfat" && f.TotalBytes > f.UsedBytes && f.UsedBytes > 0
	}) {
		t.Errorf("the reported file systems are %+v", mounted.Items)
	}
	wait.Until(t, "the file system has a metric", func() bool {
		c.info() // a status has the agent asked again
		text, err := suite.Scrape(t.Context())
		m := c.pod.config.Metadata
		return err == nil && strings.Contains(text, fmt.Sprintf(`file_system_type="vfat",mount_point="/disk",name=%q,namespace=%q`, m.Name, m.Namespace))
	})

	frozen := func(flag, want string) {
		t.Helper()
		assert.Equal(t, c.exec("/usr/bin/virt-freezer", flag, "--name", "a", "--namespace", "b").ExitCode, int32(0))
		assert.Equal(t, string(c.exec("nodevirt.io/keep-frozen", "10s").Stdout), want)
	}
	frozen("--freeze", "frozen")
	frozen("--unfreeze", "thawed")
	c.control("pause")
	c.control("pause")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if page, err := suite.Fetch(ctx, http.MethodGet, c.url("/"), ""); err == nil {
		t.Errorf("a paused guest says %q", page)
	}
	c.control("unpause")
	c.control("unpause")
	c.page("/")

	for _, button := range []string{"reset", "reboot"} {
		before := c.guest().BootID
		c.control(button)
		c.comesBack(before)
	}

	c.wantExecError(codes.InvalidArgument, `no machine control "nodevirt.io/explode": after nodevirt.io/ comes one of backup, backup-cancel, backup-finish, backup-serve, backup-status, card-attach, card-detach, card-status, connect, console, disk-attach, disk-detach, disk-grow, disk-status, display, filesystems, freeze, guest-info, keep-frozen, link-state, memory-dump, memory-dump-status, memory-save, memory-save-end, migrate-cancel,`,
		10, "nodevirt.io/explode")
	c.wantExecError(codes.InvalidArgument, "takes no arguments", 10, "nodevirt.io/pause", "now")
	c.wantExecError(codes.Unknown, "the VM has no display", 10, "nodevirt.io/screenshot")
}

func TestScreenshot(t *testing.T) {
	t.Parallel()
	c := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": displayed})).vm(suite.halt).start()
	c.saying("halted")
	picture, err := png.Decode(bytes.NewReader(c.control("screenshot")))
	assert.NilError(t, err)
	if size := picture.Bounds().Size(); size.X < 320 || size.Y < 200 {
		t.Errorf("the picture has %v pixels", size)
	}
}
