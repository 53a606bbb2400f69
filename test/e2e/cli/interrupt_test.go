package cli

import (
	"path/filepath"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// testInterrupt presses ctrl-C as soon as there is a pod, which is somewhere
// between the pod's making and the console: with --rm nothing may be left.
func (u user) testInterrupt(t *testing.T) {
	u = u.in(t)
	u.do("image", "build", disk(t, "halted", guest.Halt), "-t", "interrupted:1")
	before := u.census(t)
	cmd := u.n.Command(t.Context(), u.program, u.run("interrupted:1", "--rm", "--name", "interrupted")...)
	assert.NilError(t, cmd.Start())
	wait.Until(u, "the pod", func() bool {
		out, err := u.n.Crictl(t.Context(), "pods", "--name", "^interrupted$", "--quiet")
		return err == nil && out != ""
	})
	assert.NilError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	_ = cmd.Wait() // of nsenter, which the signal ends before nodevirt
	wait.Until(u, "the end of all that was made", func() bool {
		logs, err := filepath.Glob(filepath.Join(u.n.Dir(), "podlogs", "*"))
		return u.n.SameAgain(t.Context(), before, 0) == nil && err == nil && len(logs) == 0
	})
}
