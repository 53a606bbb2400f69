package badinput

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/node"
)

// iscsiCases fail when a disk must be served. They are the first to ask for one: tgtd does not listen yet.
func iscsiCases() []badCase {
	return []badCase{
		{name: "tgtd does not run", at: atStart, code: codes.Unavailable, before: withoutTgtd},
		{name: "tgtd hangs", at: atStart, code: codes.Unavailable, before: withHangingTgtd},
		{name: "its port is another program's", at: atStart, code: codes.FailedPrecondition, before: withPortTaken},
	}
}

// testOddNames: what a pod is called reaches libvirtd, with its disk's secret, and is no one's syntax.
func (s *suite) testOddNames(t *testing.T) {
	before := s.census(t)
	p := s.run(t, "odd", func(c *runtimeapi.PodSandboxConfig) {
		// CNI has names in a list with semicolons and equals signs, and refuses those that would break it.
		c.Metadata.Name, c.Metadata.Namespace = `o'd"d <&>,%s\`, "path:/etc/shadow,<!--]]>"
		c.Annotations = map[string]string{vmspec.AnnotationDiskMode: string(vmspec.ModeISCSI)}
	})
	s.boot(t, p)
	if served := s.census(t)["target"]; len(served) != 1 {
		t.Errorf("tgtd serves %q", served)
	}
	s.remove(t, p)
	s.wantNothingSince(t, before)
}

// withoutTgtd takes its socket away, as on a node that has none.
func withoutTgtd(t *testing.T, s *suite, _ *pod) (undo func()) {
	t.Helper()
	socket := filepath.Join(s.n.Dir(), "run/nodevirt-tgtd/tgtd.0")
	move := func(from, to string) {
		t.Helper()
		assert.NilError(t, os.Rename(from, to))
	}
	move(socket, socket+".away")
	return func() { move(socket+".away", socket) }
}

func withHangingTgtd(t *testing.T, s *suite, _ *pod) (undo func()) {
	t.Helper()
	all, err := s.n.Components()
	assert.NilError(t, err)
	signal := func(name string) {
		t.Helper()
		for _, c := range all {
			if c.Name != node.Tgtd {
				continue
			}
			if _, err := s.n.Output(t.Context(), "kill", "-"+name, strconv.Itoa(c.PID)); err != nil {
				t.Fatal(err)
			}
		}
	}
	signal("STOP")
	return func() { signal("CONT") }
}

func withPortTaken(t *testing.T, s *suite, _ *pod) (undo func()) {
	t.Helper()
	l, err := s.n.Listen(t.Context(), "tcp", "127.0.0.1:3260")
	assert.NilError(t, err)
	return func() { _ = l.Close() }
}
