//go:build cluster && slow

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestClientsOfAGuestThatMoves: virtctl's console goes on with a guest that moves. Its display ends, and is there for
// a new client. The logs of both pods have each line of the guest once. The guest has the MAC address that it had.
func TestClientsOfAGuestThatMoves(t *testing.T) {
	whole(t)
	const name = "watched"
	o := movable(name, name)
	o["spec"].(object)["template"].(object)["spec"].(object)["domain"].(object)["devices"].(object)["autoattachGraphicsDevice"] = true
	m := moverOf(t, o)
	const mac = "cat /sys/class/net/eth0/address"
	had := m.sh(t, mac)

	console := clustertest.Start(t, suite.VirtctlCommand, "console", name)
	console.Until("echo $((40 + 2))-before\n", "42-before")
	display := displayOf(t, name, 15901)
	logs := clustertest.Start(t, suite.KubectlCommand, "logs", "--follow", podOf(t, name))
	m.sh(t, "(i=0; while [ ! -e /run/quiet ]; do echo tick $((i += 1)) tock; usleep 50000; done) >/dev/ttyS0 2>&1 </dev/null &")
	wait.Until(t, "the guest's lines", func() bool { return len(ticks(t, logs.Text())) > 20 })

	m.move(t)
	after := podOf(t, name)
	wait.Until(t, "the guest's lines after the move", func() bool { return len(ticks(t, kubectl(t, "logs", after))) > 20 })
	m.sh(t, ": >/run/quiet")
	console.Until("echo $((40 + 3))-after\n", "43-after")
	select {
	case <-logs.Ended(): // all of the pod's log has come
	case <-time.After(wait.Patience):
		t.Error("the log of the pod that the guest has left does not end")
	}
	sent := logs.Text()
	all := ticks(t, strings.ReplaceAll(sent, "\r", "")+kubectl(t, "logs", after))
	for i, n := range all {
		if n != i+1 {
			t.Fatalf("after %d lines in the log of the pod that the guest has left, line %d of both is tick %d", len(ticks(t, sent)), i+1, n)
		}
	}
	t.Logf("%d lines, of which %d before the move", len(all), len(ticks(t, sent)))

	if _, err := io.ReadAll(display); err != nil {
		t.Errorf("the display of a guest that has moved: %v", err)
	}
	displayOf(t, name, 15902)
	assert.Equal(t, m.sh(t, mac), had)
	m.intact(t)
}

// podOf returns the pod that runs a VM.
func podOf(t *testing.T, name string) string {
	t.Helper()
	return kubectl(t, "get", "pods", "--selector=app="+name, "--field-selector=status.phase=Running", "-o", "jsonpath={.items[0].metadata.name}")
}

// displayOf connects to a VM's display by virtctl, which listens on a port.
func displayOf(t *testing.T, name string, port int) net.Conn {
	t.Helper()
	clustertest.Start(t, suite.VirtctlCommand, "vnc", "--proxy-only", fmt.Sprintf("--port=%d", port), name).Until("", strconv.Itoa(port))
	var conn net.Conn
	wait.Success(t, "the display", func(ctx context.Context) (err error) {
		conn, err = suite.Control().Dial(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	assert.NilError(t, conn.SetDeadline(time.Now().Add(2*wait.Patience)))
	hello := make([]byte, 12)
	if _, err := io.ReadFull(conn, hello); err != nil || string(hello) != "RFB 003.008\n" {
		t.Fatal(errors.Join(fmt.Errorf("the display says %q", hello), err))
	}
	return conn
}

var tick = regexp.MustCompile(`tick (\d+) tock`)

// ticks returns the numbers of a guest's lines.
func ticks(t *testing.T, text string) (all []int) {
	t.Helper()
	for _, m := range tick.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[1])
		assert.NilError(t, err)
		all = append(all, n)
	}
	return all
}
