//go:build machine

package machine

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/wait"
)

// patience bounds what the machine does by itself: to boot, or to boot a guest. Calls of [wait.Do] are
// repeated until it is over.
const patience = 25 * time.Minute

// name is that of the machine, as a pod and as a node.
const name = "machine"

// environment is the one that root has.
func environment() []string {
	return []string{"env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"}
}

// host is a machine that boots.
type host interface {
	// boot starts the machine. The payload is under /opt/payload.
	boot(t *testing.T)
	// command is a command that runs a program in the machine as root.
	command(ctx context.Context, args ...string) *exec.Cmd
	// rebooted waits until the machine, which is rebooting, has ended, and sees that it starts
	// again.
	rebooted(t *testing.T)
}

// run runs a script in the machine, and returns what it wrote to stdout.
func run(ctx context.Context, script string) (string, error) {
	cmd := suite.machine.command(ctx, append(environment(), "sh", "-ec", "cd /root; "+script)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("in the machine: %s: %w: %s%s", script, err, stderr.String(), stdout.String())
	}
	return stdout.String(), nil
}

// must runs a script that must succeed, and returns what it wrote without space around it.
func must(t *testing.T, script string) string {
	t.Helper()
	out, err := run(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// logged is must, and logs what the script wrote.
func logged(t *testing.T, script string) string {
	t.Helper()
	out := must(t, script)
	t.Logf("%s\n%s", script, out)
	return out
}

// until tries until there is no error, and ends the test if patience is over.
func until(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end) && t.Context().Err() == nil; {
		if err = wait.Do(t.Context(), try); err == nil {
			return
		}
	}
	t.Fatalf("wait for %s: %v", what, err)
}

// untilOutput runs a script until its output has a text, and returns the output.
func untilOutput(t *testing.T, script, text string) (out string) {
	t.Helper()
	until(t, text, func(ctx context.Context) (err error) {
		if out, err = run(ctx, script); err == nil && !strings.Contains(out, text) {
			err = fmt.Errorf("%s wrote %s; want %q", script, out, text)
		}
		return err
	})
	return out
}
