//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// server is the VM that virtctl's ssh and scp go to, of a distribution as people run them.
const server = "debian"

// The Secrets with the keys and the passwords of the server's users.
const serverKeys, serverPasswords = server + "-keys", server + "-passwords"

// laterKey is the file of a key that the server gets while it runs.
const laterKey = "later"

// secureShell is the client's side of ssh.
type secureShell struct {
	*virtctl
	folder string // with the key, and what is copied
}

// startServer starts a VM that cloud-init gives a user with the key, and returns at once. The guest's
// agent sets the same key, and a password.
func (v *virtctl) startServer() *secureShell {
	v.t.Helper()
	s := &secureShell{v, v.t.TempDir()}
	ctx := v.t.Context()
	for _, name := range []string{"key", laterKey} {
		keygen := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.path(name))
		if out, err := keygen.CombinedOutput(); err != nil {
			v.t.Fatalf("make a key: %v: %s", err, out)
		}
	}
	key, err := os.ReadFile(s.path("key.pub"))
	assert.NilError(v.t, err)
	// Virtctl compares a file's whole text with a line of the Secret, to remove that.
	assert.NilError(v.t, os.WriteFile(s.path("key.pub"), bytes.TrimSpace(key), 0o600))
	disk, err := guest.Debian(ctx, suite.Control().GuestOptions())
	assert.NilError(v.t, err)
	img, err := images.RegistryDisk(disk, images.DiskOptions{})
	assert.NilError(v.t, err)
	ref, err := suite.Push(ctx, "debian:12", img)
	assert.NilError(v.t, err)
	v.t.Cleanup(func() {
		ctx := context.WithoutCancel(v.t.Context())
		if v.t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmi", server)
			log, _ := suite.Kubectl(ctx, "logs", "--selector=vm.kubevirt.io/name="+server, "--tail=60")
			v.t.Logf("%s\n%s", about, log)
		}
		for _, what := range []string{"vm/" + server, "secret/" + serverKeys, "secret/" + serverPasswords} {
			if _, err := suite.Kubectl(ctx, "delete", what, "--ignore-not-found"); err != nil {
				v.t.Error(err)
			}
		}
	})
	assert.NilError(v.t, suite.Apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %[2]s}
stringData: {key: "%[5]s"}
---
apiVersion: v1
kind: Secret
metadata: {name: %[3]s}
stringData: {jdoe: %[6]s}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %[1]s}
spec:
  runStrategy: Always
  template:
    spec:
      domain:
        memory: {guest: 384Mi}
        devices:
          disks: [{name: boot, disk: {bus: virtio}}, {name: seed, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      accessCredentials:
      - sshPublicKey: {source: {secret: {secretName: %[2]s}}, propagationMethod: {qemuGuestAgent: {users: [jdoe]}}}
      - userPassword: {source: {secret: {secretName: %[3]s}}, propagationMethod: {qemuGuestAgent: {}}}
      volumes:
      - {name: boot, containerDisk: {image: "%[4]s"}}
      - name: seed
        cloudInitNoCloud:
          userData: |
            #cloud-config
            users:
            - name: jdoe
              shell: /bin/bash
              ssh_authorized_keys: ["%[5]s"]
`, server, serverKeys, serverPasswords, ref, strings.TrimSpace(string(key)), rand.Text())))
	return s
}

func (s *secureShell) path(name string) string { return filepath.Join(s.folder, name) }

// run is virtctl's ssh or scp, which people would also let ask for the host's key.
func (s *secureShell) run(command string, args ...string) (string, error) {
	return s.runAs("key", command, args...)
}

// runAs is run with the key of a file.
func (s *secureShell) runAs(key, command string, args ...string) (string, error) {
	options := []string{command, "--identity-file=" + s.path(key)}
	if strings.Contains(args[0], "local-ssh=false") {
		options = append(options, "--known-hosts=")
	} else {
		options = append(options, "--local-ssh-opts=-o StrictHostKeyChecking=no", "--local-ssh-opts=-o UserKnownHostsFile=/dev/null")
	}
	return s.virtctl.run("", append(options, args...)...)
}

// works runs commands in the guest, and copies a file there and back, with the machine's own ssh and
// with virtctl's.
func (s *secureShell) works() {
	s.t.Helper()
	// An emulated one takes a minute, and several on a busy machine.
	assert.NilError(s.t, suite.WaitFor(s.t.Context(), "vmi/"+server, "condition=AgentConnected", "--timeout=10m"))
	wait.Success(s.t, "the guest's ssh server", func(context.Context) error {
		_, err := s.run("ssh", "--command=true", "jdoe@vmi/"+server)
		return err
	})
	for _, args := range [][]string{
		{"--command=hostname", "jdoe@vmi/" + server},
		{"--command=hostname", "--username=jdoe", "vm/" + server},
		{"--local-ssh=false", "--command=hostname", "jdoe@vmi/" + server},
	} {
		if out, err := s.run("ssh", args...); err != nil || !strings.HasSuffix(out, server+"\n") {
			s.t.Errorf("ssh %v: %v: %q", args, err, out)
		}
		s.used("ssh " + strings.Join(args, " "))
	}
	if out, err := s.run("ssh", "--command=exit 7", "jdoe@vmi/"+server); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		s.t.Errorf("a command that fails: %v: %q", err, out)
	}
	sent := make([]byte, 1<<20+1)
	_, _ = rand.Read(sent) // it never fails
	assert.NilError(s.t, os.WriteFile(s.path("file"), sent, 0o600))
	for _, flags := range [][]string{{"--preserve"}, {"--local-ssh=false"}} {
		for _, way := range [][]string{{"file", "jdoe@vmi/" + server + ":file"}, {"jdoe@vmi/" + server + ":file", "back"}} {
			local := func(name string) string {
				if strings.Contains(name, ":") {
					return name
				}
				return s.path(name)
			}
			if out, err := s.run("scp", append(flags, local(way[0]), local(way[1]))...); err != nil {
				s.t.Errorf("scp %v: %v: %q", way, err, out)
			}
			s.used("scp " + strings.Join(append(flags, way...), " "))
		}
		got, err := os.ReadFile(s.path("back"))
		if err != nil || !bytes.Equal(got, sent) {
			s.t.Errorf("%d bytes came back of %d, %v", len(got), len(sent), err)
		}
		_ = os.Remove(s.path("back")) // which the next round writes again
	}
	s.credentials()
}

// credentials waits for what the agent has set, and changes the Secrets: the running guest then takes another key, and
// the former no more, and has another password.
func (s *secureShell) credentials() {
	s.t.Helper()
	assert.NilError(s.t, suite.WaitFor(s.t.Context(), "vmi/"+server, "condition=AccessCredentialsSynchronized"))
	for _, args := range [][]string{
		{"remove-ssh-key", "--user=jdoe", "--force", "--file=key.pub", server},
		{"add-ssh-key", "--user=jdoe", "--force", "--file=" + laterKey + ".pub", server},
		{"set-password", "--user=jdoe", "--force", "--password=p", server},
	} {
		command := "credentials " + strings.Join(args, " ")
		if out, err := s.virtctl.run("", strings.Fields(strings.Replace(command, "--file=", "--file="+s.folder+"/", 1))...); err != nil {
			s.t.Errorf("%s: %v: %s", command, err, out)
		}
		s.used(strings.Replace(command, laterKey+".pub", "key.pub", 1))
	}
	changed := time.Now()
	wait.Success(s.t, "the guest takes the later key alone", func(context.Context) error {
		if out, err := s.runAs(laterKey, "ssh", "--command=true", "jdoe@vmi/"+server); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if _, err := s.run("ssh", "--command=true", "jdoe@vmi/"+server); err == nil {
			return errors.New("the former key is still taken")
		}
		return nil
	})
	s.t.Logf("the guest has the later key alone after %s", time.Since(changed).Round(time.Second))
	// Debian's Perl asks the C library, as login(1) does.
	const same = `perl -e '$h = (getpwnam("jdoe"))[1]; print crypt("p", $h) eq $h ? "same" : "other"'`
	wait.Success(s.t, "the guest's user has the password", func(context.Context) error {
		if is := inGuest(s.t, server, same); is != "same" {
			return fmt.Errorf("it has the %s one", is)
		}
		return nil
	})
	data := kubectl(s.t, "get", "secret", serverKeys, serverPasswords, "-o", "jsonpath={range .items[*]}{.data} {end}")
	if !strings.Contains(data, `"jdoe":"cA=="`) || !strings.Contains(data, `"ssh-key-`) {
		s.t.Errorf("virtctl made the Secrets %s", data)
	}
}
