//go:build cluster && slow

package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// mover is a VM that moves between the two nodes, and whose guest writes to its disk meanwhile.
type mover struct{ name, boot, at string }

// shell makes the guest's page /cgi-bin/run a shell.
const shell = "#!/bin/sh\nexec sh -s\n"

// writer fills parts of a disk with what is random, again and again, and keeps the same in memory.
const writer = `rm -f /run/enough /run/idle
dd if=/dev/zero of=/run/copy bs=64k count=32 2>/dev/null
dd if=/run/copy of=/dev/vdb bs=64k conv=fsync 2>/dev/null
echo 0 >/run/written
(i=0
while [ ! -e /run/enough ]; do
	dd if=/dev/urandom of=/run/part bs=64k count=1 2>/dev/null
	dd if=/run/part of=/dev/vdb bs=64k seek=$((i % 32)) conv=notrunc,fsync 2>/dev/null || : >/run/failed
	dd if=/run/part of=/run/copy bs=64k seek=$((i % 32)) conv=notrunc 2>/dev/null
	echo $((i += 1)) >/run/written
	usleep 100000
done; : >/run/idle) >/dev/null 2>&1 </dev/null &
`

func newMover(t *testing.T, name string) *mover {
	t.Helper()
	return moverOf(t, movable(name, name))
}

// moverOf makes a mover of a [movable] VM.
func moverOf(t *testing.T, o object) *mover {
	t.Helper()
	name := create(t, o)
	m := &mover{name: name, boot: answer(t, name, ""), at: harmed}
	migratable(t, name)
	if at := vmiField(t, name, ".status.nodeName"); at != harmed {
		t.Fatalf("%s runs on %s", name, at)
	}
	m.writes(t)
	return m
}

// writes has the guest begin to write.
func (m *mover) writes(t *testing.T) {
	t.Helper()
	m.post(t, "program", shell)
	m.sh(t, writer)
}

// move moves the guest to the other node.
func (m *mover) move(t *testing.T) {
	t.Helper()
	m.begin(t)
	m.succeeded(t)
}

// begin asks for a migration, and returns its name.
func (m *mover) begin(t *testing.T) string {
	t.Helper()
	cmd := suite.KubectlCommand(t.Context(), "create", "-f", "-", "-o", "jsonpath={.metadata.name}")
	cmd.Stdin = strings.NewReader(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstanceMigration",` +
		`"metadata":{"generateName":"` + m.name + `-"},"spec":{"vmiName":"` + m.name + `"}}`)
	out, err := cmd.Output()
	assert.NilError(t, err)
	return string(out)
}

// succeeded waits until the guest runs on the other node.
func (m *mover) succeeded(t *testing.T) {
	t.Helper()
	to := other(m.at)
	wait.Success(t, m.name+" on "+to, func(ctx context.Context) error {
		got, err := suite.Kubectl(ctx, "get", "vmi", m.name, "-o", "jsonpath={.status.nodeName} {.status.migrationState.failureReason}")
		if err != nil {
			return err
		}
		at, why, _ := strings.Cut(strings.TrimSpace(got), " ")
		if at != to {
			err = fmt.Errorf("it runs on %s: %s", at, why)
		}
		return err
	})
	m.at = to
	settledAt(t, m.name, m.boot, to)
	written := m.sh(t, "cat /run/written")
	wait.Until(t, "the guest writes on", func() bool { return m.sh(t, "cat /run/written") != written })
}

// intact stops the writes, and compares the disk with what the guest wrote.
func (m *mover) intact(t *testing.T) {
	t.Helper()
	m.sh(t, ": >/run/enough")
	wait.Until(t, "the guest's writer ends", func() bool { return m.sh(t, "[ -e /run/idle ] && echo idle") == "idle" })
	sums := strings.Fields(m.sh(t, "blockdev --flushbufs /dev/vdb; echo 3 >/proc/sys/vm/drop_caches; "+
		"dd if=/dev/vdb bs=64k count=32 2>/dev/null | sha256sum; sha256sum </run/copy; [ -e /run/failed ] && echo failed"))
	if len(sums) != 4 || sums[0] != sums[2] {
		t.Errorf("the disk and the memory of %s: %v", m.name, sums)
	}
	t.Logf("%s wrote %s times", m.name, m.sh(t, "cat /run/written"))
}

// sh runs lines in the guest's shell.
func (m *mover) sh(t *testing.T, lines string) string {
	t.Helper()
	return strings.TrimSpace(m.post(t, "run", lines+"\nexit 0\n"))
}

// post asks the guest for a page, with a body.
func (m *mover) post(t *testing.T, page, body string) (answer string) {
	t.Helper()
	wait.Success(t, "an answer of "+m.name, func(ctx context.Context) error {
		ip, err := suite.Kubectl(ctx, "get", "vmi", m.name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
		if err == nil && ip == "" {
			err = errors.New("no address yet")
		}
		if err == nil {
			answer, err = suite.Control().Fetch(ctx, "POST", "http://"+ip+"/cgi-bin/"+page, body)
		}
		return err
	})
	return answer
}

func other(node string) string {
	if node == steady {
		return harmed
	}
	return steady
}
