package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/wait"
)

// vmWithAgent is a running machine whose guest agent answers.
func vmWithAgent(t *testing.T) *container {
	t.Helper()
	c := vmPod(t).vm(suite.agent, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 384 * mebibyte // the agent needs five times what it captures
	}).start().up()
	c.agentIs(agent.Present)
	return c
}

// agentIs waits until the verbose status has that state of the guest agent.
func (c *container) agentIs(p agent.Presence) {
	c.t.Helper()
	wait.Until(c.t, "the guest agent is "+string(p), func() bool { return c.info().VM.Agent.Presence == p })
}

func (c *container) tryExec(timeout int64, command ...string) (*runtimeapi.ExecSyncResponse, error) {
	return suite.cri.ExecSync(c.t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: c.id, Cmd: command, Timeout: timeout})
}

func (c *container) exec(command ...string) *runtimeapi.ExecSyncResponse {
	c.t.Helper()
	r, err := c.tryExec(60, command...)
	assert.NilError(c.t, err)
	return r
}

func (c *container) wantExec(stdout, stderr string, code int32, command ...string) {
	c.t.Helper()
	r := c.exec(command...)
	if string(r.Stdout) != stdout || string(r.Stderr) != stderr || r.ExitCode != code {
		c.t.Errorf("%q said %.100q and %.100q, code %d; want %q and %q, code %d",
			command, r.Stdout, r.Stderr, r.ExitCode, stdout, stderr, code)
	}
}

// wantExecError runs what must fail with a code and words.
func (c *container) wantExecError(code codes.Code, words string, timeout int64, command ...string) {
	c.t.Helper()
	r, err := c.tryExec(timeout, command...)
	if status.Code(err) != code || !strings.Contains(fmt.Sprint(err), words) {
		c.t.Errorf("%q: %v, %v; want code %s and %q", command, r, err, code, words)
	}
}

func TestExecSync(t *testing.T) {
	t.Parallel()
	c := vmWithAgent(t)
	c.wantExec("out\n", "err\n", 3, "sh", "-c", "echo out; echo err >&2; exit 3")
	c.wantExec("a b  $HOME \"\\'<&>\n\tü\x01\n", "", 0, "echo", "a b  $HOME \"\\'<&>\n\tü\x01")
	c.wantExec("/\n", "", 0, "pwd")
	c.wantExec("", "", 0, "/bin/true")
	c.wantExec("", "", 1, "false")
	c.wantExec("", "", 137, "sh", "-c", "kill -KILL $$")
	c.wantExec("", "", 143, "sh", "-c", "kill $$")
	r := c.exec("head", "-c", "300000", "/dev/urandom")
	if len(r.Stdout) != 300_000 {
		t.Errorf("%d of 300000 bytes of noise", len(r.Stdout))
	}
	// A code: the kubelet counts no error as the failure of a probe.
	for program, words := range map[string]string{"nothing-of-this-name": "cannot be run in the guest", "/etc/inittab": "Permission denied"} {
		if r := c.exec(program, "x"); r.ExitCode != 127 || !strings.Contains(string(r.Stderr), words) {
			t.Errorf("%s: %v", program, r)
		}
	}
	c.wantExecError(codes.InvalidArgument, "UTF-8", 60, "echo", "\x00")
	c.wantExecError(codes.InvalidArgument, "no program", 60)

	// What does not end in time is ended in the guest, with its children.
	c.wantExecError(codes.DeadlineExceeded, "timeout 1s exceeded", 1, "sh", "-c", "sleep 7654; true")
	wait.Until(t, "the command has ended", func() bool { return !strings.Contains(string(c.exec("ps").Stdout), "7654") })

	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			r, err := c.tryExec(60, "sh", "-c", fmt.Sprintf("sleep 2; echo %d", i))
			if err != nil || string(r.Stdout) != fmt.Sprintln(i) {
				t.Errorf("command %d: %v, %v", i, r, err)
			}
		})
	}
	all.Wait()

	// More than the kubelet takes in a message is cut, without an error.
	r, err := suite.cri.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: c.id, Cmd: []string{"sh", "-c", "dd if=/dev/zero bs=1M count=20; exit 4"},
	}, grpc.MaxCallRecvMsgSize(kubeletsMessage))
	assert.NilError(t, err)
	if len(r.Stdout) < kubeletsMessage-mebibyte || r.ExitCode != 4 || !strings.Contains(string(r.Stderr), "20+0 records out") {
		t.Errorf("of 20 MiB came %d bytes, stderr %q, code %d", len(r.Stdout), r.Stderr, r.ExitCode)
	}
}

// kubeletsMessage is the largest message that the kubelet takes, in bytes.
const kubeletsMessage = 16 * mebibyte

func TestExecByCrictl(t *testing.T) {
	t.Parallel()
	c := vmWithAgent(t)
	if out := crictl(t, "exec", "--sync", c.id, "uname", "-n"); strings.TrimSpace(out) != c.guest().Hostname {
		t.Errorf("crictl exec --sync says %q", out)
	}
	if out := crictl(t, "exec", c.id[:12], "sh", "-c", "echo streamed"); out != "streamed\n" {
		t.Errorf("crictl exec says %q", out)
	}
	cmd := suite.Command(t.Context(), "crictl", "exec", "-i", c.id, "sh", "-c", "cat; echo told >&2; exit 5")
	cmd.Stdin = strings.NewReader("from stdin\x00\n")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if string(out) != "from stdin\x00\n" || !strings.HasPrefix(stderr.String(), "told\n") || !strings.Contains(stderr.String(), "5") || err == nil {
		t.Errorf("crictl exec -i says %q and %q, %v", out, stderr.String(), err)
	}
	_, err = suite.Crictl(t.Context(), "exec", c.id, "nothing-of-this-name")
	if err == nil || !strings.Contains(err.Error(), "cannot be run in the guest") {
		t.Errorf("a program that isn't there: %v", err)
	}
	_, err = suite.Crictl(t.Context(), "exec", "--sync", "--timeout", "1", c.id, "sleep", "60")
	if err == nil || !strings.Contains(err.Error(), "timeout 1s exceeded") {
		t.Errorf("a command that takes too long: %v", err)
	}
	// What the agent reports is in the verbose status.
	name := c.guest().Hostname
	wait.Until(t, "the status tells of the guest", func() bool { // which may have had no address when it was asked first
		a := c.info().VM.Agent
		return a.Hostname == name && a.Version != "" && a.OS != nil && a.OS.Kernel != "" &&
			len(a.Interfaces) == 1 && len(a.Interfaces[0].Addresses) > 0 && a.Interfaces[0].Addresses[0].Addr().String() == c.ip()
	})
}

func TestExecWithoutAnAgent(t *testing.T) {
	t.Parallel()
	c := vmPod(t).vm(suite.tiny).start()
	c.agentIs(agent.Absent) // QEMU reports it during the start
	c.wantExecError(codes.FailedPrecondition, "install and start qemu-guest-agent", 60, "true")
	_, err := suite.Crictl(t.Context(), "exec", c.id, "true")
	if err == nil || !strings.Contains(err.Error(), "install and start qemu-guest-agent") {
		t.Errorf("crictl exec: %v", err)
	}
	c.up()
	c.agentIs(agent.Absent)
	c.wantExecError(codes.FailedPrecondition, "install and start qemu-guest-agent", 60, "true")
	c.stop(60)
	_, err = c.tryExec(60, "true")
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "container is in CONTAINER_EXITED state") {
		t.Errorf("in a machine that ended: %v", err)
	}
}

// A guest may put anything in its agent's place.
func TestAHostileAgent(t *testing.T) {
	t.Parallel()
	c := vmPod(t, annotated(map[string]string{"nodevirt.io/cloud-init-user-data": `#!/bin/sh
port=$(grep -l org.qemu.guest_agent.0 /sys/class/virtio-ports/*/name)
port=${port%/name}
echo hostile >/dev/console
yes '{"return": {"pid": 1, "exited": true}}' >/dev/${port##*/}
`})).vm(suite.tiny).start()
	c.saying("hostile$")
	c.agentIs(agent.Present)
	for range 3 {
		if _, err := c.tryExec(2, "true"); err == nil || status.Code(err) == codes.Unknown {
			t.Errorf("a hostile agent's answer: %v", err)
		}
	}
	if text := c.infoText(); len(text) > 64<<10 {
		t.Errorf("the status has %d bytes", len(text))
	}
	c.stop(60)
	c.wantEnd(c.status(), 0, "Completed")
}

// TestExecWithATerminal runs a shell as a person does.
func TestExecWithATerminal(t *testing.T) {
	t.Parallel()
	c := vmWithAgent(t)
	s := onTerminal(t, "stty rows 33 cols 101; crictl exec -it "+c.id+" sh")
	s.sees("# ")
	for _, line := range []struct{ types, sees string }{
		{"tty\n", "/dev/hvc1"},
		{"test -t 0 -a -t 1 -a -t 2 && echo a terminal $((40+2))\n", "a terminal 42"},
		{"stty size\n", "33 101"},
		{"echo $TERM\n", "vt102"},
		{"sh -c 'echo asleep $((40+4)); sleep 600'\n", "asleep 44"},
	} {
		s.types(line.types)
		s.sees(line.sees)
	}
	prompts := strings.Count(s.seen(), "# ")
	s.types("\x03") // ends the program, not the shell; a terminal may drop its echo
	wait.Until(t, "the shell asks again", func() bool { return strings.Count(s.seen(), "# ") > prompts })
	s.types("echo still $((40+3))\n")
	s.sees("still 43")

	// Four at once, and what they run apart.
	others := []*session{}
	for n := 2; n <= 4; n++ {
		other := onTerminal(t, "crictl exec -it "+c.id+" sh")
		other.sees("# ")
		others = append(others, other)
	}
	excess := onTerminal(t, "crictl exec -it "+c.id+" sh")
	excess.sees("terminals are in use")
	if err := excess.ends(); err == nil {
		t.Error("no error of one terminal too many")
	}
	s.types("exit 7\n")
	if err := s.ends(); err == nil || !strings.Contains(s.seen(), "exit code 7") && !strings.Contains(err.Error(), "7") {
		t.Errorf("exit 7 ended with %v:\n%s", err, s.seen())
	}
	// A client that disconnects ends its command.
	for _, other := range others {
		other.types("sh -c 'echo asleep $((40+5)); sleep 7531'\n")
		other.sees("asleep 45")
		other.leave()
	}
	wait.Until(t, "the commands end", func() bool { return !strings.Contains(string(c.exec("ps").Stdout), "7531") })
	again := onTerminal(t, "crictl exec -it "+c.id+" nothing-of-this-name")
	again.sees("nothing-of-this-name")
	if err := again.ends(); err == nil {
		t.Error("no error of a program that isn't there")
	}
}
