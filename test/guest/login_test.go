package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/internal/turns"
	"github.com/nodevirt/nodevirt/shim/agent"
	cloudinit "github.com/nodevirt/nodevirt/shim/seed"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestTinyWithLogin: a guest takes keys from a config drive, and keys and passwords from its agent, until
// its user data disables that. Port 80 is free for servers that a test starts.
func TestTinyWithLogin(t *testing.T) {
	needs.Parts(t, "QEMU, a Debian mirror")
	disk, err := guest.TinyWithLogin(t.Context(), guest.Options{Log: os.Stderr}, guest.Fedora, true)
	assert.NilError(t, err)
	drivePath := filepath.Join(t.TempDir(), "seed.iso")
	assert.NilError(t, cloudinit.Write(t.Context(), drivePath, cloudinit.ConfigDrive(), vmspec.Seed{
		MetaData: `{"hostname":"drive","instance_id":"i-1","public_keys":{"0":"ssh-rsa AAAA1 me","1":"ssh-rsa AAAA2"},"uuid":"u"}`,
		UserData: "#!/bin/bash\nwhile [ ! -e /run/go-on ]; do sleep 1; done\n" +
			"echo -e '\\n\\nBLACKLIST_RPC=guest-exec,guest-ssh-add-authorized-keys' | sudo tee -a /etc/sysconfig/qemu-ga\n",
	}))
	more := filepath.Join(t.TempDir(), "more")
	assert.NilError(t, os.WriteFile(more, nil, 0o600))
	assert.NilError(t, os.Truncate(more, 8<<20))
	m := start(t, 256, append(append(drive(overlay(t, disk), "qcow2"), drive(drivePath, "raw", "readonly=on")...),
		"-drive", "if=none,id=more,format=raw,file="+more, "-device", "virtio-blk-pci,drive=more,serial=more")...)
	m.waitFor(`^nodevirt guest: up host=drive`, 5*time.Minute)

	a := agent.New(agent.Options{Socket: m.agent, Large: turns.New("others", 1, 1)})
	a.Port.Report(agent.Present)
	inGuest := func(command string) string {
		t.Helper()
		r, err := a.Commands.Exec(t.Context(), agent.Command{Args: []string{"sh", "-c", command}})
		assert.NilError(t, err)
		return string(r.Stdout)
	}
	const keys = "cat /home/fedora/.ssh/authorized_keys"
	if got := inGuest(keys); got != "ssh-rsa AAAA1 me\nssh-rsa AAAA2\n" {
		t.Errorf("keys of the config drive: %q", got)
	}
	assert.NilError(t, a.Actions.SetKeys(t.Context(), "fedora", []string{"ssh-rsa AAAA3 a b", "ssh-ed25519 AAAA4"}))
	if got := strings.TrimSpace(inGuest(keys)); got != "ssh-rsa AAAA3 a b\nssh-ed25519 AAAA4" {
		t.Errorf("keys of the agent: %q", got)
	}
	assert.NilError(t, a.Actions.SetKeys(t.Context(), "fedora", nil))
	if got := strings.TrimSpace(inGuest(keys)); got != "" {
		t.Errorf("no keys: %q", got)
	}
	if err := a.Actions.SetKeys(t.Context(), "nobody", nil); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("keys of a user that is not there: %v", err)
	}
	assert.NilError(t, a.Actions.SetPassword(t.Context(), "fedora", "hunter2 :x"))
	if got := inGuest("cat /run/password.fedora"); got != "hunter2 :x\n" {
		t.Errorf("password %q", got)
	}
	if got := inGuest("/bin/nc -klp 80 -e echo free >/dev/null 2>&1 & for i in 1 2 3 4 5; do sleep 1 | nc 127.0.0.1 80 && break; sleep 1; done"); got != "free\n" {
		t.Errorf("answer of a server on port 80: %q", got)
	}
	wait.Until(t, "a link to a disk", func() bool { return inGuest("ls /dev/disk/by-id") == "virtio-more\n" })
	const write = "mkfs.ext4 -F $(find /dev/disk/by-id -name '*more') >/dev/null && mkdir -p /test/more && " +
		"mount /dev/disk/by-id/virtio-more /test/more && echo kept >/test/more/file && cat /test/more/file"
	if got := inGuest(write); got != "kept\n" {
		t.Errorf("a file system on a disk: %q", got)
	}
	const ext3 = "umount /test/more && mkfs.ext3 -F /dev/disk/by-id/virtio-more >/dev/null && " +
		"sudo mount -t ext3 /dev/disk/by-id/virtio-more /test/more && echo again >/test/more/file && cat /test/more/file"
	if got := inGuest(ext3); got != "again\n" {
		t.Errorf("a file system of the type ext3: %q", got)
	}
	if got := inGuest("lspci"); !strings.Contains(got, "00:00.0 0600: 8086:29c0\n") {
		t.Errorf("PCI devices: %q", got)
	}
	inGuest("touch /run/go-on")
	wait.Until(t, "the user data's end", func() bool {
		err := a.Actions.SetKeys(t.Context(), "fedora", nil)
		return err != nil && strings.Contains(err.Error(), "the guest agent refuses guest-ssh-add-authorized-keys")
	})
	assert.NilError(t, a.Actions.SetPassword(t.Context(), "fedora", "other"))
	m.execute("system_powerdown", nil, nil)
	m.waitFor("^nodevirt guest: poweroff$", time.Minute)
	m.waitEnd()
}
