//go:build slow

package e2e

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// A cloud image of a distribution, as users bring it. cloud-init says what came
// of it on the console, as its last word, when the guest has addresses of both
// families: systemd calls a network of one online.
const debianUserData = `#cloud-config
write_files:
- path: /etc/from-user-data
  content: written
runcmd:
- "for i in $(seq 120); do hostname -I | grep -q '[.].* .*:' && ip -6 route | grep -q ^default && break; sleep 1; done"
- "echo e2e host=$(hostname) ips=$(hostname -I | tr ' ' ,) router=$(ip -6 route | grep -c ^default) file=$(cat /etc/from-user-data) key=$(grep -c e2e /root/.ssh/authorized_keys) > /dev/ttyS0"
disable_root: false
`

func TestDebianWithCloudInitAndAgent(t *testing.T) {
	t.Parallel()
	disk, err := guest.Debian(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	ref, err := pushDisk(t.Context(), "debian:1", disk, images.DiskOptions{Compressed: false})
	assert.NilError(t, err)
	assert.NilError(t, pull(t.Context(), ref))
	p := vmPod(t, annotated(map[string]string{
		"nodevirt.io/cloud-init-user-data": debianUserData,
		"nodevirt.io/ssh-authorized-keys":  sshKey,
		// The pod has IPv4 and IPv6: see the suite's node.
		"nodevirt.io/cloud-init-network-config": "version: 2\nethernets:\n  all:\n    match: {driver: virtio_net}\n" +
			"    dhcp4: true\n    dhcp6: true\n    accept-ra: true\n",
	}))
	c := p.vm(ref, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 512 * mebibyte
	}).start()
	line := c.sayingWithin(10*time.Minute, `e2e host=`)
	ips := p.ip() + "," + p.status().GetNetwork().GetAdditionalIps()[0].GetIp() + ","
	if want := "e2e host=" + p.config.Hostname + " ips=" + ips + " router=1 file=written key=1"; !strings.Contains(line, want) {
		t.Errorf("cloud-init made %q; want %q", line, want)
	}
	c.sayingWithin(10*time.Minute, `Cloud-init v\. \S+ finished at .* DataSourceNoCloud`)
	c.answersSSH()
	c.agentIs(agent.Present)
	c.wantExec(p.config.Hostname+"\n", "", 0, "hostname")
	s := onTerminal(t, "stty rows 33 cols 101; crictl exec -it "+c.id+" bash -c 'tty; stty size; exit 7'")
	s.sees("/dev/hvc1")
	s.sees("33 101")
	if err := s.ends(); err == nil || !strings.Contains(s.seen(), "exit code 7") {
		t.Errorf("a command with a terminal ended with %v:\n%s", err, s.seen())
	}
	c.wantExecError(codes.DeadlineExceeded, "timeout 2s exceeded", 2, "sh", "-c", "sleep 7654; true")
	wait.Until(t, "the command has ended", func() bool { return c.exec("pgrep", "-f", "sleep 765[4]").ExitCode == 1 })
	wait.Until(t, "the guest agent tells of the guest", func() bool {
		a := c.info().VM.Agent
		return a.OS != nil && a.OS.ID == "debian" && a.OS.Version == "12" && a.Hostname == p.config.Hostname
	})
	c.stop(600)
	c.wantEnd(c.status(), 0, "Completed")
}

// answersSSH wants the banner of an SSH server.
func (c *container) answersSSH() {
	c.t.Helper()
	conn, err := suite.Dial(c.t.Context(), "tcp", net.JoinHostPort(c.ip(), "22"))
	assert.NilError(c.t, err)
	defer func() { _ = conn.Close() }()
	assert.NilError(c.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	banner, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(banner, "SSH-2.0-") {
		c.t.Errorf("the SSH server says %q, %v", banner, err)
	}
}
