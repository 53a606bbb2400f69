package guest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// machine is a guest that runs under a bare, emulated QEMU, on a q35 board with the devices that
// nodevirt gives a VM. Its network is QEMU's own, with ports on loopback.
type machine struct {
	t       *testing.T
	cmd     *exec.Cmd
	console *console
	qmp     *json.Decoder
	qmpConn net.Conn
	agent   string // path of the guest agent's socket
	ended   chan error
	ports   map[string]string // guest port → address on loopback
}

// start boots qemu with further arguments. The machine is killed at the end of the test.
func start(t *testing.T, memory int, args ...string) *machine {
	t.Helper()
	needs.Parts(t, "QEMU")
	dir, err := os.MkdirTemp("", "guest-") // t.TempDir is too long for a socket's path
	assert.NilError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &machine{t: t, console: newConsole(t), agent: filepath.Join(dir, "agent"), ended: make(chan error, 1)}
	qmp := filepath.Join(dir, "qmp")
	args = append([]string{
		"-S", // a guest may end at once
		"-accel", "tcg", "-machine", "q35", "-m", fmt.Sprint(memory), "-nodefaults", "-display", "none",
		"-serial", "stdio", "-qmp", "unix:" + qmp + ",server=on,wait=off",
		"-netdev", "user,id=net,hostfwd=tcp:127.0.0.1:0-:80,hostfwd=tcp:127.0.0.1:0-:7,hostfwd=tcp:127.0.0.1:0-:22",
		"-device", "virtio-net-pci,netdev=net", "-device", "virtio-rng-pci", "-device", "virtio-balloon-pci",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=agent,server=on,wait=off,path=" + m.agent,
		"-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
	}, args...)
	m.cmd = exec.Command("qemu-system-x86_64", args...)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that times out runs no cleanup
	m.cmd.Stdout, m.cmd.Stderr = m.console, m.console
	assert.NilError(t, m.cmd.Start())
	go func() { m.ended <- m.cmd.Wait() }()
	t.Cleanup(m.kill)
	m.qmpConn = dial(t, qmp)
	m.qmp = json.NewDecoder(m.qmpConn)
	m.execute("qmp_capabilities", nil, nil)
	m.findPorts()
	m.execute("cont", nil, nil)
	return m
}

// dial connects to a socket of qemu as soon as qemu made it.
func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	var conn net.Conn
	wait.Success(t, "QEMU's socket", func(context.Context) (err error) {
		conn, err = net.Dial("unix", path)
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (m *machine) kill() {
	_ = m.cmd.Process.Kill()
	select {
	case <-m.ended:
	case <-time.After(time.Minute):
		m.t.Errorf("qemu %d does not end", m.cmd.Process.Pid)
	}
}

// execute runs a QMP command and skips the events before its answer.
func (m *machine) execute(command string, arguments, result any) {
	m.t.Helper()
	request, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if arguments == nil {
		request, err = json.Marshal(map[string]any{"execute": command})
	}
	assert.NilError(m.t, err)
	if _, err := m.qmpConn.Write(request); err != nil {
		m.t.Fatal(err)
	}
	for {
		var answer struct {
			Return json.RawMessage
			Error  json.RawMessage
		}
		if err := m.qmp.Decode(&answer); err != nil {
			m.t.Fatalf("QMP %s: %v", command, err)
		}
		if answer.Error != nil {
			m.t.Fatalf("QMP %s: %s", command, answer.Error)
		}
		if answer.Return == nil {
			continue
		}
		if result != nil {
			assert.NilError(m.t, json.Unmarshal(answer.Return, result))
		}
		return
	}
}

// findPorts learns the loopback ports that the kernel gave for the guest's.
func (m *machine) findPorts() {
	m.t.Helper()
	var info string
	m.execute("human-monitor-command", map[string]string{"command-line": "info usernet"}, &info)
	m.ports = map[string]string{}
	for _, f := range regexp.MustCompile(`TCP\[HOST_FORWARD\]\s+\d+\s+(\S+)\s+(\d+)\s+\S+\s+(\d+)`).FindAllStringSubmatch(info, -1) {
		m.ports[f[3]] = net.JoinHostPort(f[1], f[2])
	}
	if len(m.ports) != 3 {
		m.t.Fatalf("no forwarded ports in: %s", info)
	}
}

// request asks the guest's web server, again until it answers: QEMU accepts a connection before
// the guest does.
func (m *machine) request(method, path, body string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	for {
		answer, err := m.try(ctx, method, path, body)
		if err == nil {
			return answer
		}
		if ctx.Err() != nil {
			m.t.Fatalf("%s %s: %v", method, path, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (m *machine) try(ctx context.Context, method, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+m.ports["80"]+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s", resp.Status, data))
	}
	return string(data), err
}

// waitEnd waits until qemu ended by itself.
func (m *machine) waitEnd() {
	m.t.Helper()
	select {
	case err := <-m.ended:
		m.ended <- nil // for kill
		if err != nil {
			m.t.Fatalf("qemu: %v", err)
		}
	case <-time.After(5 * time.Minute):
		m.t.Fatal("the machine runs on")
	}
}

// console keeps what a guest writes, and shows it where a test failed.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newConsole(t *testing.T) *console {
	c := &console{more: make(chan struct{})}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console:\n%s", c.String())
		}
	})
	return c
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.more)
	c.more = make(chan struct{})
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// waitFor waits for a whole line that matches, and returns it.
func (m *machine) waitFor(pattern string, most time.Duration) string {
	m.t.Helper()
	re, deadline := regexp.MustCompile(pattern), time.After(most)
	for ended := false; ; {
		m.console.mu.Lock()
		more := m.console.more
		text := m.console.text.String()
		m.console.mu.Unlock()
		whole := text[:strings.LastIndexByte(text, '\n')+1]
		lines := bufio.NewScanner(strings.NewReader(whole))
		for lines.Scan() {
			if line := strings.TrimRight(lines.Text(), "\r"); re.MatchString(line) {
				return line
			}
		}
		if ended {
			m.t.Fatalf("the machine ended before a line like %q", pattern)
		}
		select {
		case <-more:
		case err := <-m.ended: // after the last of its output
			m.ended <- err
			ended = true
		case <-deadline:
			m.t.Fatalf("no line like %q", pattern)
		}
	}
}
