//go:build cluster && slow

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// The consoles of one machine: of clients that are silent, that hear megabytes, and that are not alone.
func TestConsole(t *testing.T) {
	t.Parallel()
	const name = "talkative"
	instance(t, name)
	refusedDial(t, "nobody/console", "", 404, `virtualmachineinstances.kubevirt.io "nobody" not found`)
	refusedDial(t, name+"/console", "somebody", 403, `User "somebody" cannot get resource "virtualmachineinstances/console"`)

	// The newest ends the one before, and not those that attach to the pod.
	first := connect(t, name+"/console")
	first.send("echo client-$((1 + 40))\n")
	first.sees("\nclient-41")
	watching := start(t, "attach", "-it", kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "name"))
	silent := connect(t, name+"/console")
	first.isTakenOver()
	silent.send("echo client-$((2 + 40))\n")
	silent.sees("\nclient-42")
	watching.Until("", "client-42")
	heavy(silent)

	// Longer than the API server's timeout of requests, which is a minute.
	wait.Success(t, "pings on a silent console", func(context.Context) error {
		if _, pings := silent.got(); pings < 3 {
			return fmt.Errorf("%d pings", pings)
		}
		return nil
	})
	silent.forgets()
	silent.send("echo answer-$((40 + 2))\n")
	silent.sees("answer-42")
	silent.send("/etc/stop poweroff\n")
	silent.endsNormally()
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Succeeded"))
	refusedDial(t, name+"/console", "", 409, "VMI is not running")
}

// heavy checks that a client gets all that a guest prints, byte by byte. The node keeps 256 KiB of a
// client's backlog: so much comes at a time.
func heavy(s *socket) {
	s.t.Helper()
	const bursts, lines = 10, 26_000 // of 8 bytes each
	for i := range bursts {
		from := 100_000 + i*lines
		s.forgets()
		s.send(fmt.Sprintf("echo begin-$((%d + 0)); seq %d %d; echo end-$((%[1]d + 0))\n", i, from, from+lines-1))
		got := s.sees(fmt.Sprintf("end-%d\r\n", i))
		_, got, _ = strings.Cut(got, fmt.Sprintf("begin-%d\r\n", i))
		var want strings.Builder
		for n := range lines {
			fmt.Fprintf(&want, "%d\r\n", from+n)
		}
		fmt.Fprintf(&want, "end-%d\r\n", i)
		if diff := cmp.Diff(want.String(), got); diff != "" {
			s.t.Fatalf("%d bytes of the console, %d came (-want +got):\n%s", want.Len(), len(got), diff)
		}
	}
}
