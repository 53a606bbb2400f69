//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

func TestLogsAreTheConsole(t *testing.T) {
	t.Parallel()
	const mark = "a line for kubectl logs"
	kubectl(t, "exec", vm, "--", "sh", "-c", "echo "+mark+" >/dev/ttyS0")
	wait.Success(t, "the line in the log", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "logs", "--tail=200", vm)
		if err == nil && !strings.Contains(out, mark) {
			err = fmt.Errorf("log: %q", out)
		}
		return err
	})
}

func TestExecRunsInTheGuest(t *testing.T) {
	t.Parallel()
	if got := kubectl(t, "exec", vm, "--", "hostname"); got != vm {
		t.Errorf("stdout: %q", got)
	}
	cmd := suite.KubectlCommand(t.Context(), "exec", "-i", vm, "--", "sh", "-c", "cat; echo bad >&2; exit 7")
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("from outside"), &stdout, &stderr
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 7 {
		t.Errorf("exit: %v", err)
	}
	if stdout.String() != "from outside" || !strings.HasPrefix(stderr.String(), "bad\n") {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
}

// The serial console has a shell, so that what is typed has an answer.
func TestAttachIsTheSerialConsole(t *testing.T) {
	t.Parallel()
	pod := vmPod("attach", suite.tiny)
	container(pod)["stdin"], container(pod)["tty"] = true, true
	name := ready(t, pod)
	answer(t, field(t, name, ".status.podIP"))
	s := start(t, "attach", "-it", name)
	// The echo of what was typed is not the answer.
	s.Until("echo $((40 + 2))-answer\n", "42-answer")
}

func TestPortForwardReachesTheGuest(t *testing.T) {
	t.Parallel()
	s := start(t, "port-forward", "pod/"+vm, ":80")
	line := s.Until("", "Forwarding from 127.0.0.1:")
	_, port, _ := strings.Cut(line, "Forwarding from 127.0.0.1:")
	port, _, _ = strings.Cut(port, " ")
	page, err := suite.Control().Fetch(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/cgi-bin/info", "")
	assert.NilError(t, err)
	if !strings.Contains(page, `"hostname": "`+vm+`"`) {
		t.Errorf("page: %q", page)
	}
}
