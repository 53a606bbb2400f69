//go:build slow

package criwalk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestAway asks every RPC about a VM that runs, and starts one that was created, while a daemon is
// away. It is not parallel: all tests share the daemons.
func TestAway(t *testing.T) {
	var said strings.Builder
	for _, daemon := range []string{node.Libvirtd, node.Containerd} {
		running := newSubject(newPod(t, "running-without-"+daemon, "vm").run(), "compute", suite.machine)
		assert.NilError(t, running.create())
		assert.NilError(t, running.start())
		made := newSubject(newPod(t, "created-without-"+daemon, "vm").run(), "compute", suite.machine)
		assert.NilError(t, made.create())
		assert.NilError(t, suite.Kill(t.Context(), daemon, syscall.SIGKILL))
		w := newWalk(t, containerCases(), running, made)
		w.without(daemon, &said)
		if daemon == node.Libvirtd {
			wantFailedStarts(t, made)
		}
		assert.NilError(t, suite.Resume(t.Context(), daemon))
		w.back(daemon)
	}
	golden.Assert(t, said.String(), "away.golden")
}

// wantFailedStarts compares a VM whose start failed with a sidecar that could not be started either.
func wantFailedStarts(t *testing.T, machine *subject) {
	t.Helper()
	process := newSubject(machine.pod, "sidecar", suite.process)
	process.config.Command = []string{"/no/such/program"}
	assert.NilError(t, process.create())
	if process.start() == nil {
		t.Error("a program that isn't there was started")
	}
	w := newWalk(t, map[string]rpc{}, machine, process)
	for _, method := range []string{"ContainerStatus", "ListContainers", "StartContainer"} {
		c := containerCases()[method]
		v := map[string]string{"ListContainers": "by id"}[method]
		m, p := w.ask(machine, method, c.ask(machine, machine.id)[v]), w.ask(process, method, c.ask(process, process.id)[v])
		if m.code != p.code {
			t.Errorf("%s after a failed start: a VM is answered %v, an ordinary container %v", method, m, p)
		}
		w.said.note(method, m, p)
	}
	golden.Assert(t, w.said.String(), "failedstart.golden")
}

// without writes down what is answered, errors as they are worded.
func (w *walk) without(daemon string, said *strings.Builder) {
	w.t.Helper()
	for _, method := range slices.Sorted(maps.Keys(w.cases)) {
		s := w.machine
		if method == "StartContainer" {
			s = w.process // the one that was only created
		}
		all := w.cases[method].ask(s, s.id)
		variant := slices.Sorted(maps.Keys(all))[0]
		if a := w.ask(s, method, all[variant]); a.code == "OK" {
			fmt.Fprintf(said, "%s away: %s\n\tOK\n", daemon, method)
		} else {
			fmt.Fprintf(said, "%s away: %s\n\t%s: %s\n", daemon, method, a.code, strings.Join(a.lines, "\n\t"))
		}
	}
}

// back waits until the daemon serves again, by removing what exists since before it was away. The
// shim has two connections to containerd.
func (w *walk) back(daemon string) {
	w.t.Helper()
	wait.Success(w.t, daemon+" to serve again", func(ctx context.Context) error {
		_, away := suite.cri.Version(ctx, &runtimeapi.VersionRequest{})
		return errors.Join(away, w.machine.stop(), w.machine.removeIt(), w.process.removeIt())
	})
}
