//go:build faults

package faults

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// TestReboot ends all processes of a node at once and starts it again on the folders that a
// machine keeps.
func TestReboot(t *testing.T) {
	t.Run("a file", func(t *testing.T) { reboots(t, func(*pod) {}) })
	t.Run("over iSCSI", func(t *testing.T) { reboots(t, (*pod).overISCSI) })
}

// reboots is TestReboot with pods that are changed in a way.
func reboots(t *testing.T, change func(*pod)) {
	o := borrowSuite(t)
	all := plan{calls: life, kills: []kill{{victim: node.Libvirtd}, {victim: node.Containerd}, {victim: node.Shim}}}
	p, err := newPod("reboot", suite.halt, 64<<20)
	assert.NilError(t, err)
	change(p)
	r := &round{plan: all, pod: p, begun: time.Now()}
	r.does(t, life[:started]...)
	created, err := newPod("reboot-created", suite.halt, 64<<20)
	assert.NilError(t, err)
	change(created)
	rc := &round{plan: all, pod: created, begun: time.Now()}
	rc.does(t, life[:started-1]...)

	assert.NilError(t, syscall.Kill(suite.PID(), syscall.SIGKILL))
	for runs(r.domain()) && t.Context().Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	suite.Node, err = node.Start(t.Context(), o)
	assert.NilError(t, err)
	assert.NilError(t, redial())

	assert.NilError(t, converge(t.Context(), r.isTrue))
	reply, err := suite.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: r.container})
	assert.NilError(t, err)
	if s := reply.Status; s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.ExitCode != 137 {
		t.Errorf("after the reboot the container is %s, code %d, %q", s.State, s.ExitCode, s.Reason)
	}
	next, err := newPod("reboot-next", suite.halt, 64<<20)
	assert.NilError(t, err)
	change(next)
	rn := &round{plan: all, pod: next, begun: time.Now()}
	rn.does(t, life[:started]...)
	for _, each := range []*round{rn, r, rc} {
		assert.NilError(t, each.remove(t.Context()))
	}
	assert.NilError(t, converge(t.Context(), sameSecrets(nil)))
	left, err := suite.Leftovers(t.Context())
	assert.NilError(t, err)
	for _, kind := range []string{"snapshot", "lease", "netns", "target"} {
		if len(left[kind]) > 0 {
			t.Errorf("a %s is left: %q", kind, left[kind])
		}
	}
	domains, err := suite.Output(t.Context(), "virsh", "--connect", "qemu:///system", "list", "--all", "--name")
	assert.NilError(t, err)
	if domains = strings.TrimSpace(domains); domains != "" {
		t.Errorf("a domain is left: %s", domains)
	}
}

// borrowSuite has the suite stand for a node of the test's own.
func borrowSuite(t *testing.T) node.Options {
	t.Helper()
	before := suite
	dir, err := os.MkdirTemp("", "nodevirt-")
	assert.NilError(t, err)
	assert.NilError(t, os.Chmod(dir, 0o711))
	o := node.Options{Dir: dir, Bin: *bin, Bound: true}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			t.Log(suite.LogTail(node.Shim, 30))
		}
		if suite.Node != before.Node {
			assert.NilError(t, suite.Stop(ctx))
			_ = suite.conn.Close()
		}
		suite = before
		assert.NilError(t, node.Purge(ctx, dir))
	})
	suite.conn = nil
	suite.Node, err = node.Start(t.Context(), o)
	assert.NilError(t, err)
	assert.NilError(t, redial())
	assert.NilError(t, push(t.Context()))
	return o
}
