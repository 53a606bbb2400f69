package guest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/wait"
)

// renew puts the next version of a Secret into a folder, as the kubelet does.
func renew(t *testing.T, folder, version string, files map[string]string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(folder, version), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, version, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := filepath.Join(folder, "..data_tmp")
	if err := os.Symlink(version, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(folder, "..data")); err != nil {
		t.Fatal(err)
	}
}

// guarded is a running VM with credentials.
func guarded(n *node, given ...vmspec.Credential) *table.VM {
	n.agents.accessPause = 10 * time.Millisecond
	v := n.add("a", record.Running)
	r := v.Record()
	r.Spec.Credentials = given
	v.Publish(r)
	return v
}

// waitForAccess waits for a state of a guest's credentials, and returns its message.
func (n *node) waitForAccess(t *testing.T, v *table.VM, reason string) string {
	t.Helper()
	var message string
	wait.Until(t, reason, func() bool {
		c := n.agents.Credentials(v)
		if c == nil || c.Reason != reason {
			return false
		}
		message = c.Message
		return true
	})
	return message
}

// requests returns the requests about users.
func (n *node) requests() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.asked)
}

func TestAccess(t *testing.T) {
	n := newNode(t)
	keys, more, passwords := t.TempDir(), t.TempDir(), t.TempDir()
	renew(t, keys, "..1", map[string]string{"a": "ssh-rsa AAAA1\n", "b": "ssh-rsa AAAA2"})
	renew(t, more, "..1", map[string]string{"a": "ssh-rsa AAAA3"})
	renew(t, passwords, "..1", map[string]string{"root": "hunter2\n"})
	v := guarded(n,
		vmspec.Credential{Secret: vmspec.MountedSecret{Name: "keys", Folder: keys}, Users: []string{"fedora", "root"}},
		vmspec.Credential{Secret: vmspec.MountedSecret{Name: "more", Folder: more}, Users: []string{"fedora"}},
		vmspec.Credential{Secret: vmspec.MountedSecret{Name: "passwords", Folder: passwords}},
	)
	if c := n.agents.Credentials(v); c != nil {
		t.Errorf("before anything is known: %+v", c)
	}
	n.agents.Absent(v)
	n.waitForAccess(t, v, condition.ReasonAgentDisconnected)
	n.serve(t, v, map[string]string{"guest-ssh-add-authorized-keys": "{}", "guest-set-user-password": "{}"})
	n.agents.watch(v)
	n.waitForAccess(t, v, condition.ReasonSynchronized)
	want := []string{
		`{"execute":"guest-ssh-add-authorized-keys","arguments":{"username":"fedora","keys":["ssh-rsa AAAA1","ssh-rsa AAAA2","ssh-rsa AAAA3"],"reset":true}}`,
		`{"execute":"guest-ssh-add-authorized-keys","arguments":{"username":"root","keys":["ssh-rsa AAAA1","ssh-rsa AAAA2"],"reset":true}}`,
		`{"execute":"guest-set-user-password","arguments":{"username":"root","password":"aHVudGVyMg==","crypted":false}}`,
	}
	if got := n.requests(); !slices.Equal(got, want) {
		t.Errorf("the agent is asked %q; want %q", got, want)
	}
	renew(t, keys, "..2", nil)
	last := `{"execute":"guest-ssh-add-authorized-keys","arguments":{"username":"root","keys":[],"reset":true}}`
	wait.Until(t, "the change of a Secret", func() bool { return slices.Contains(n.requests(), last) })
	n.agents.watch(v) // as after a restart of libvirtd
	n.waitForAccess(t, v, condition.ReasonSynchronized)
}

func TestAccessFails(t *testing.T) {
	n := newNode(t)
	keys, passwords := t.TempDir(), t.TempDir()
	renew(t, keys, "..1", map[string]string{"a": "no key"})
	renew(t, passwords, "..1", map[string]string{"root": "hunter2"})
	v := guarded(n,
		vmspec.Credential{Secret: vmspec.MountedSecret{Name: "keys", Folder: keys}, Users: []string{"root"}},
		vmspec.Credential{Secret: vmspec.MountedSecret{Name: "passwords", Folder: passwords}},
	)
	n.serve(t, v, map[string]string{"guest-set-user-password": "once {}"})
	n.agents.watch(v)
	if got := n.waitForAccess(t, v, condition.ReasonSyncFailed); got != "read Secret keys: key a: line 1 is not a public key as in authorized_keys" {
		t.Errorf("a bad key: %q", got)
	}
	// From the second time on the agent disables both commands.
	renew(t, keys, "..2", map[string]string{"a": "ssh-rsa AAAA"})
	var got string
	for _, part := range []string{"user root: the guest agent refuses guest-ssh-add-authorized-keys: ", "user root: guest-set-user-password: " + agent.ErrDisabled.Error()} {
		wait.Until(t, part, func() bool { // a password may be refused before the new key is read
			got = n.waitForAccess(t, v, condition.ReasonUnsupportedAgent)
			return strings.Contains(got, part)
		})
	}
	if strings.Contains(got, "hunter2") || strings.Contains(got, "aHVudGVyMg") {
		t.Errorf("%q has the password", got)
	}
	n.agents.Absent(v)
	n.waitForAccess(t, v, condition.ReasonAgentDisconnected)
	n.agents.Of(v).Port.Report(agent.Present)
	if c := n.agents.Credentials(v); c != nil {
		t.Errorf("an agent that was not asked yet: %+v", c)
	}
	if c := n.agents.Credentials(n.add("b", record.Running)); c != nil {
		t.Errorf("a VM without credentials: %+v", c)
	}
}

// TestAccessEnds: what was kept for an earlier agent says nothing of the present one.
func TestAccessEnds(t *testing.T) {
	s := &access{end: func() {}}
	ended := false
	s.begin(func() { ended = true })
	if !s.set(t.Context(), podstatus.Credentials{Reason: "a"}) || s.set(t.Context(), podstatus.Credentials{Reason: "a"}) {
		t.Error("a state is new once")
	}
	s.begin(func() {})
	if !ended || s.state != nil {
		t.Errorf("ended %t, state %+v", ended, s.state)
	}
}
