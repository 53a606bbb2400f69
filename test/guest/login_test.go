package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

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
	m := start(t, 256, append(drive(overlay(t, disk), "qcow2"), drive(drivePath, "raw", "readonly=on")...)...)
	m.waitFor(`^nodevirt guest: up host=drive`, 5*time.Minute)

	a := agent.New(agent.Options{Socket: m.agent, Large: make(chan struct{}, 1)})
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
	inGuest("touch /run/go-on")
	wait.Until(t, "the user data's end", func() bool {
		err := a.Actions.SetKeys(t.Context(), "fedora", nil)
		return err != nil && strings.Contains(err.Error(), "the guest agent refuses guest-ssh-add-authorized-keys")
	})
	assert.NilError(t, a.Actions.SetPassword(t.Context(), "fedora", "other"))
}
