package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// environ is what the node's daemons and commands find in their environment.
func (o Options) environ() []string {
	return []string{
		"PATH=" + o.Bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"LC_ALL=C",
		"LIBVIRT_DEFAULT_URI=qemu:///system",
	}
}

// enter is the command line that runs another in the node.
func (n *Node) enter(name string, args ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(n.PID()), "--mount", "--uts", "--ipc",
		"--net", "--pid", "--wd=" + n.o.path("cwd"), "--", name}, args...)
}

// Environ is the environment of the commands that Command makes.
func (n *Node) Environ() []string {
	return append(n.o.environ(), "CONTAINER_RUNTIME_ENDPOINT="+n.endpoint,
		"IMAGE_SERVICE_ENDPOINT="+n.endpoint, "CRI_CONFIG_FILE="+n.o.etc("crictl.yaml"))
}

// Command is exec.CommandContext for a program that runs in the node, with the node's programs in
// PATH and crictl set to its endpoint. It sees the machine's files, but for /run and libvirt's and
// CNI's folders; its working directory is the node's, so paths should be absolute. When ctx is
// done it is killed with all that it started.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if strings.HasPrefix(name, ".") {
		name, _ = filepath.Abs(name)
	}
	line := n.enter(name, args...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = n.Environ()
	// nsenter has to fork to enter a PID namespace: it is the group that must be killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Exec replaces this process by a program that runs in the node and has this process's terminal.
func (n *Node) Exec(name string, args ...string) error {
	line := n.enter(name, args...)
	path, err := exec.LookPath(line[0])
	if err != nil {
		return fmt.Errorf("enter node: %w", err)
	}
	env := append(n.Environ(), "TERM="+os.Getenv("TERM"), `PS1=\h# `)
	return fmt.Errorf("enter node: %w", syscall.Exec(path, line, env))
}

// Output runs a program in the node and returns what it wrote to stdout; an error carries what it
// wrote to stderr.
func (n *Node) Output(ctx context.Context, name string, args ...string) (string, error) {
	return output(n.Command(ctx, name, args...))
}

// Crictl runs crictl in the node; see Output.
func (n *Node) Crictl(ctx context.Context, args ...string) (string, error) {
	return n.Output(ctx, "crictl", args...)
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	var tail []byte
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		tail = bytes.TrimSpace(exit.Stderr)
	}
	_, line, _ := strings.Cut(strings.Join(cmd.Args, " "), " -- ")
	return string(out), fmt.Errorf("%s: %w: %s", line, err, tail)
}
