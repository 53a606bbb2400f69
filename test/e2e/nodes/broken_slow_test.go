//go:build cluster && slow

package nodes

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

var (
	migrations = flag.Int("migrations", 3, "number of migrations with a fault, of TestBrokenMigrations")
	seed       = flag.Uint64("seed", 1, "seed of the first of them; the next ones count up")
)

// steps are those of a migration without a fault.
var steps = []handover.Step{
	handover.StepConnected, handover.StepDefining, handover.StepDefined, handover.StepBegun, handover.StepPreparing,
	handover.StepReady, handover.StepPrepared, handover.StepPerformed, handover.StepHandedOver, handover.StepReceived,
	handover.StepFinished, handover.StepTaken, handover.StepResumed, handover.StepTargetEnded, handover.StepAnswered,
	handover.StepLeft, handover.StepSourceEnded,
}

// part is what a migration needs and a test can break. Both functions get the names of the two nodes.
type part struct {
	name   string
	harm   func(t *testing.T, source, target string)
	repair func(ctx context.Context, source, target string) error
	// guest: with this part the guest may end.
	guest bool
	// cancels: the migration is deleted.
	cancels bool
}

// parts are all parts of a migration.
var parts = []part{
	component("the source's shim", node.Shim, source),
	component("the target's shim", node.Shim, target),
	component("the source's libvirtd", node.Libvirtd, source),
	component("the target's libvirtd", node.Libvirtd, target),
	component("the source's kubelet", cluster.Kubelet, source),
	component("the target's kubelet", cluster.Kubelet, target),
	{name: "the source's QEMU", harm: func(t *testing.T, from, _ string) { killAll(t, from, "qemu-system-x86_64") }, repair: nothing, guest: true},
	{name: "the target's QEMU", harm: func(t *testing.T, _, to string) { killAll(t, to, "qemu-system-x86_64") }, repair: nothing, guest: true},
	{name: "the controller", harm: func(t *testing.T, from, to string) {
		killAll(t, from, "nodevirt-controller")
		killAll(t, to, "nodevirt-controller")
	}, repair: func(ctx context.Context, _, _ string) error {
		// New pods start at once; containers that ended often would wait.
		_, err := suite.Kubectl(ctx, "--namespace=nodevirt", "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
		return err
	}},
	{name: "the API server", harm: func(t *testing.T, _, _ string) {
		assert.NilError(t, suite.Control().Kill(t.Context(), apiServer, syscall.SIGKILL))
	}, repair: func(ctx context.Context, _, _ string) error { return suite.Control().Resume(ctx, apiServer) }},
	{name: "the link", harm: func(t *testing.T, from, to string) {
		assert.NilError(t, blackholes(t.Context(), "add", from, to))
	}, repair: func(ctx context.Context, from, to string) error { return blackholes(ctx, "del", from, to) }},
}

const apiServer = "kube-apiserver"

func source(from, _ string) string { return from }
func target(_, to string) string   { return to }

func nothing(context.Context, string, string) error { return nil }

// component is a part of a node.
func component(name, component string, at func(source, target string) string) part {
	return part{name: name, harm: func(t *testing.T, from, to string) {
		assert.NilError(t, suite.Node(at(from, to)).Kill(t.Context(), component, syscall.SIGKILL))
	}, repair: func(ctx context.Context, from, to string) error {
		return suite.Node(at(from, to)).Resume(ctx, component)
	}}
}

// blackholes adds or removes routes that lose what the nodes' pods send each other.
func blackholes(ctx context.Context, verb, from, to string) error {
	for at, lost := range map[string]string{from: to, to: from} {
		pods := "10.244." + strings.TrimPrefix(lost, "node-") + ".0/24"
		if _, err := suite.Node(at).Output(ctx, "ip", "route", verb, "blackhole", pods); err != nil {
			return err
		}
	}
	return nil
}

// TestBrokenMigrations breaks a part of the cluster at a step of a migration. Whatever part, and whatever step:
// one guest runs afterwards, on the node that the API names, with its disk; and nothing else is left.
// A guest whose QEMU was killed has ended, and its VM has started again.
func TestBrokenMigrations(t *testing.T) {
	whole(t)
	m := newMover(t, "broken")
	watchRunning(t)
	// Each seed is one cell of the table of parts and steps. As many seeds as it has cells are all of it.
	cells := rand.New(rand.NewPCG(0, 0)).Perm(len(parts) * len(steps))
	for i := range uint64(*migrations) {
		seed := *seed + i
		cell := cells[seed%uint64(len(cells))]
		p, step := parts[cell/len(steps)], steps[cell%len(steps)]
		away := time.Duration(rand.New(rand.NewPCG(seed, 0)).IntN(10_000)) * time.Millisecond
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("seed %d: %s fails for %s at %q; the guest is on %s", seed, p.name, away, step, m.at)
			m.breaks(t, p, step, away)
		})
		if !ok {
			t.Fatalf("again: make test-migrations MIGRATIONS=1 SEED=%d FLAGS='-run TestBroken'", seed)
		}
	}
}

// breaks moves the guest, breaks a part of that at a step, and checks the result.
func (m *mover) breaks(t *testing.T, p part, step handover.Step, away time.Duration) {
	t.Helper()
	from, to := m.at, other(m.at)
	at := from
	if strings.HasPrefix(string(step), "target: ") {
		at = to
	}
	log := openLog(t, at)
	ended := false
	t.Cleanup(func() {
		if ended {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience)
		defer cancel()
		if err := p.repair(ctx, from, to); err != nil {
			t.Error(err)
		}
	})
	migration := m.begin(t)
	log.await(t, step)
	// The shim stops where it is, so that the fault comes before its next step.
	signalAll(t, at, "nodevirt-shim", syscall.SIGSTOP)
	p.harm(t, from, to)
	signalAll(t, at, "nodevirt-shim", syscall.SIGCONT)
	time.Sleep(away)
	ended = true
	assert.NilError(t, p.repair(t.Context(), from, to))
	m.repaired(t)

	phase, reason := m.ended(t, migration)
	t.Logf("the migration %s: %s", phase, reason)
	boot := answer(t, m.name, "")
	m.at = vmiField(t, m.name, ".status.nodeName")
	if boot != m.boot {
		if !p.guest {
			t.Fatal("the guest was booted again")
		}
		m.boot = boot
		m.writes(t)
	} else if want := map[string]string{"Succeeded": to, "Failed": from}[phase]; m.at != want && (!p.cancels || phase != gone) {
		t.Errorf("the migration %s, and the guest is on %s", phase, m.at)
	}
	settledAt(t, m.name, m.boot, m.at)
	assert.NilError(t, guestRuns(m.name))
	if !running(t.Context(), m.at)[m.name] {
		t.Errorf("no guest runs on %s", m.at)
	}
	if !p.cancels { // a kubelet takes up to a minute to remove what has ended
		cleanNode(t, other(m.at))
	}
	m.intact(t)
	m.writes(t)
}

// repaired waits until the cluster works again.
func (m *mover) repaired(t *testing.T) {
	t.Helper()
	wait.Success(t, "a cluster that works", func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "wait", "nodes", "--all", "--for=condition=Ready", "--timeout=10s")
		if err == nil {
			_, err = suite.Kubectl(ctx, "--namespace=nodevirt", "rollout", "status", "deployment/nodevirt-controller", "--timeout=10s")
		}
		return err
	})
}

// gone stands for the phase of a migration that is gone.
const gone = "is gone"

// ended waits for the end of a migration. One whose VM has started again may be gone.
func (m *mover) ended(t *testing.T, migration string) (phase, reason string) {
	t.Helper()
	wait.Success(t, "the end of the migration", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "vmim", migration, "--ignore-not-found", "-o",
			"jsonpath={.status.phase}|{.status.migrationState.failureReason}|{.status.conditions}")
		if err != nil {
			return err
		}
		fields := strings.SplitN(out, "|", 3)
		if out == "" {
			phase = gone
			return nil
		}
		if phase, reason = fields[0], fields[1]; phase != "Succeeded" && phase != "Failed" {
			return fmt.Errorf("it is %s", out)
		}
		return nil
	})
	return phase, reason
}

// stepLog is the end of a shim's log.
type stepLog struct{ *os.File }

// openLog opens the log of a node's shim at its end.
func openLog(t *testing.T, name string) stepLog {
	t.Helper()
	f, err := os.Open(filepath.Join(suite.Node(name).Dir(), "log", node.Shim+".log"))
	assert.NilError(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.Seek(0, io.SeekEnd)
	assert.NilError(t, err)
	return stepLog{f}
}

// await waits until a migration has reached a step.
func (l stepLog) await(t *testing.T, step handover.Step) {
	t.Helper()
	var text strings.Builder
	buffer := make([]byte, 64<<10)
	for end := time.Now().Add(wait.Patience); time.Now().Before(end); {
		n, err := l.Read(buffer)
		text.Write(buffer[:n])
		if strings.Contains(text.String(), string(step)) {
			return
		}
		if err == nil {
			continue
		}
		if err != io.EOF { //nolint:errorlint // a file's
			t.Fatal(err)
		}
		time.Sleep(500 * time.Microsecond)
	}
	t.Fatalf("no step %q in the log:\n%s", step, text.String())
}

// killAll kills the processes of a program on a node.
func killAll(t *testing.T, name, program string) {
	t.Helper()
	signalAll(t, name, program, syscall.SIGKILL)
}

// signalAll sends a signal to the processes of a program on a node.
func signalAll(t *testing.T, name, program string, sig syscall.Signal) {
	t.Helper()
	all, err := processes(program)
	assert.NilError(t, err)
	for _, p := range all {
		if strings.Contains(p.groups, "/"+suite.Node(name).Name()+"/") {
			_ = syscall.Kill(p.pid, sig) // it may have ended
		}
	}
}
