package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/netsetup/reach"
	"github.com/nodevirt/nodevirt/test/images"
)

// intruder is a process with a user id that tries actions in the node. It has no more than a QEMU
// process has that its guest has taken over.
type intruder struct {
	t        *testing.T
	uid, gid int
	// qemu is the process id of the QEMU whose limits to files it has, 0 without.
	qemu int
}

func (c *container) intruder() intruder {
	c.t.Helper()
	d := c.info().VM.Domain
	return intruder{t: c.t, uid: d.UID, gid: d.GID}
}

// succeeds returns which of the actions did not fail; see programs/intruder.
func (i intruder) succeeds(actions ...string) (done []string) {
	i.t.Helper()
	source, err := programs.ReadFile("programs/intruder/main.go")
	assert.NilError(i.t, err)
	program, err := images.Program(i.t.Context(), suite.GuestOptions(), "intruder", source)
	assert.NilError(i.t, err)
	file, err := os.Open(program.From) // the user can't enter its folder
	assert.NilError(i.t, err)
	defer file.Close()
	path := "/proc/self/fd/3"
	if i.qemu != 0 {
		path = inPlaceOfQEMU(i.t, program)
	}
	cmd := suite.Command(i.t.Context(), "setpriv", fmt.Sprint("--reuid=", i.uid), fmt.Sprint("--regid=", i.gid), "--clear-groups",
		"--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", path)
	if i.qemu != 0 {
		env, err := os.ReadFile(filepath.Join(procOf(i.qemu), "environ"))
		assert.NilError(i.t, err)
		cmd.Env = append(cmd.Env, strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00")...)
	}
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stdin = strings.NewReader(strings.Join(actions, "\n") + "\n")
	out, err := cmd.Output()
	assert.NilError(i.t, err)
	answers := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(answers) != len(actions) {
		i.t.Fatalf("%d answers to %d actions:\n%s", len(answers), len(actions), out)
	}
	for n, answer := range answers {
		if answer == "done" {
			done = append(done, actions[n])
		}
	}
	return done
}

// TestABrokenQEMUHasNoNetwork: a process with a VM's user reaches the portal of the VM's disk and no
// other address, neither the node's own nor those of others.
func TestABrokenQEMUHasNoNetwork(t *testing.T) {
	t.Parallel()
	c, other := vmPod(t, overISCSI).vm(suite.tiny).start(), vmPod(t, named("second")).vm(suite.tiny).start()
	const portal = "tcp 127.0.0.1:3260"
	actions := []string{portal, "tcp " + net.JoinHostPort(other.up().ip(), "80")}
	// The node's addresses: its loopback, and those by which pods and other nodes reach it.
	for _, host := range []string{"127.0.0.1", "::1", "10.244.1.1", "fd00:10:244:1::1"} {
		l, err := suite.Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
		assert.NilError(t, err)
		defer l.Close()
		actions = append(actions, "tcp "+l.Addr().String(), "udp "+l.Addr().String())
	}
	// An ordinary user reaches all, as would a VM's without the rules.
	ordinary := intruder{t: t, uid: 64001, gid: 64001}
	if got := ordinary.succeeds(actions...); !slices.Equal(got, actions) {
		t.Errorf("an ordinary user reaches %q of %q", got, actions)
	}
	mine := c.intruder()
	if got := mine.succeeds(actions...); !slices.Equal(got, []string{portal}) {
		t.Errorf("a VM with a disk over iSCSI reaches %q", got)
	}
	if got := other.intruder().succeeds(actions...); len(got) > 0 {
		t.Errorf("a VM without reaches %q", got)
	}
	c.stop(0)
	if got := mine.succeeds(actions...); len(got) > 0 {
		t.Errorf("a VM that ended reaches %q", got)
	}
	if rules := inNode(t, "nft", "-n", "list", "table", "inet", reach.Table); strings.Contains(rules, strconv.Itoa(mine.uid)+" .") {
		t.Errorf("left of a VM that ended:\n%s", rules)
	}
}
