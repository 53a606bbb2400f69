package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/node"
)

var vmims = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstancemigrations"}

// movable is a VMI that can migrate.
var movable = subject{vmis, vmiRunning, vmiGone, func(r *rig, name string) object {
	o := vmi.object(r, name)
	devices := o["spec"].(object)["domain"].(object)["devices"].(object)
	devices["interfaces"] = []any{object{"name": "default", "masquerade": object{}}}
	return o
}}

// moved is what one migration took.
type moved struct {
	request, nodes, down time.Duration
	rate                 float64 // of the stream, in MiB a second
	shims                float64 // by which the shims grew at most, in MiB
	requests             map[string]int
}

// migrations measures migrations of a VMI between the two nodes, beside libvirt's own.
func (r *rig) migrations(ctx context.Context, rounds, drained int) (report.Section, error) {
	section := report.Section{Title: "A migration of a VMI of " + guestMemory + ", from its creation on"}
	if err := r.spare(ctx, false); err != nil {
		return section, err
	}
	idle, err := r.moves(ctx, moving{name: "idle", memory: guestMemory}, rounds)
	if err != nil {
		return section, err
	}
	busy, err := r.moves(ctx, moving{name: "busy", memory: guestMemory, program: dirties}, rounds)
	if err != nil {
		return section, err
	}
	large, err := r.moves(ctx, moving{name: "large", memory: "1Gi", program: fills}, rounds)
	if err != nil {
		return section, err
	}
	alone, err := r.alone(ctx, rounds)
	if err != nil {
		return section, err
	}
	hop, err := r.hop(ctx)
	if err != nil {
		return section, err
	}
	wall, worst, err := r.evacuate(ctx, drained)
	if err != nil {
		return section, err
	}
	row := func(name, unit string, all []moved, of func(moved) float64) {
		s := report.Series{Of: name}
		for _, m := range all {
			s.Add(of(m))
		}
		section.Rows = append(section.Rows, report.Row{Name: name, Unit: unit, Kind: report.Value, Measured: s})
	}
	request := func(m moved) float64 { return milliseconds(m.request) }
	nodes := func(m moved) float64 { return milliseconds(m.nodes) }
	down := func(m moved) float64 { return milliseconds(m.down) }
	row("idle guest: to Succeeded", "ms", idle, request)
	row("idle guest: on the nodes", "ms", idle, nodes)
	row("the same by libvirt alone", "ms", alone, nodes)
	row("idle guest: silent", "ms", idle, down)
	row("the same by libvirt alone, paused", "ms", alone, down)
	row("guest that writes to memory: to Succeeded", "ms", busy, request)
	row("guest that writes to memory: on the nodes", "ms", busy, nodes)
	row("guest that writes to memory: silent", "ms", busy, down)
	row("guest of 1 GiB, 640 MiB written: on the nodes", "ms", large, nodes)
	row("guest of 1 GiB, 640 MiB written: silent", "ms", large, down)
	row("its stream", "MiB/s", large, func(m moved) float64 { return m.rate })
	section.Rows = append(section.Rows, report.One("one TLS connection between the nodes", "MiB/s", hop, 0))
	row("what both shims grow by", "MiB", busy, func(m moved) float64 { return m.shims })
	section.Rows = append(section.Rows,
		report.One(fmt.Sprintf("drain of a node with %d of them", drained), "ms", milliseconds(wall), 0),
		report.One("the longest silence of a guest in it", "ms", milliseconds(worst), 0))
	for _, name := range []string{"controller: all", "controller: events", "shim", "kubelet", "scheduler"} {
		row("requests: "+name, "", idle, func(m moved) float64 { return float64(m.requests[name]) })
	}
	section.Notes = []string{
		"On the nodes: from the connection of both to the guest's start on the target. Silent: between two",
		"answers of the guest's kernel, of which one is asked for every 2 ms. The requests are those until",
		"Succeeded. The policy of the guest that writes has allowAutoConverge.",
	}
	return section, r.spare(ctx, true)
}

// policy lets QEMU slow guests down.
const policy = `apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {name: bench}
spec:
  allowAutoConverge: true
  selectors: {virtualMachineInstanceSelector: {bench: busy}}
`

// moves moves a VMI back and forth.
func (r *rig) moves(ctx context.Context, guest moving, rounds int) (all []moved, err error) {
	name := guest.name
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rounds+1)*limit)
	defer cancel()
	if err := r.Apply(ctx, policy); err != nil {
		return nil, err
	}
	s := movable
	s.object = func(r *rig, name string) object {
		o := movable.object(r, name)
		o["metadata"].(object)["labels"] = object{"bench": name}
		o["spec"].(object)["domain"].(object)["memory"] = object{"guest": guest.memory}
		return o
	}
	if _, err := r.create(ctx, s, name); err != nil {
		return nil, err
	}
	if _, err := r.answers(ctx, name); err != nil {
		return nil, err
	}
	if err := r.WaitFor(ctx, "vmi/"+name, "condition=LiveMigratable=True", "--namespace="+namespace); err != nil {
		return nil, err
	}
	if guest.program != "" {
		for _, ask := range [][2]string{{"program", guest.program}, {"run", "\n"}} {
			if _, err := r.Control().Fetch(ctx, "POST", "http://"+r.seen.ip(name)+"/cgi-bin/"+ask[0], ask[1]); err != nil {
				return nil, err
			}
		}
	}
	for i := range rounds + 1 {
		fmt.Fprintf(r.log, "a migration, %s guest: round %d of %d\n", name, i, rounds)
		m, err := r.move(ctx, name)
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first brings a node the image
			all = append(all, m)
		}
	}
	if _, err := r.remove(ctx, s, name); err != nil {
		return nil, err
	}
	_, err = r.seen.wait(ctx, name, vmiGone)
	return all, err
}

// move moves a VMI to the other node.
func (r *rig) move(ctx context.Context, name string) (m moved, err error) {
	at, err := r.nodeOf(ctx, name)
	if err != nil {
		return m, err
	}
	source, target := r.Nodes()[0], r.Nodes()[1]
	if at == "node-2" {
		source, target = target, source
	}
	logs, err := openLogs(source, target)
	if err != nil {
		return m, err
	}
	defer logs.close()
	before, err := r.audited()
	if err != nil {
		return m, err
	}
	probe := r.probe(ctx, name)
	watch := watchStream(ctx, source, target)
	begun := time.Now()
	o := object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
		"metadata": object{"generateName": name + "-"}, "spec": object{"vmiName": name},
	}
	made, err := r.client.Resource(vmims).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: o}, metav1.CreateOptions{})
	if err == nil {
		err = r.succeeds(ctx, made.GetName())
	}
	m.request = time.Since(begun)
	stream := watch()
	down, probeErr := probe()
	if err := errors.Join(err, stream.err, probeErr); err != nil {
		return m, err
	}
	m.down, m.shims = down, stream.grew
	// What belongs to the end comes within this.
	if err := sleep(ctx, 2*time.Second); err != nil {
		return m, err
	}
	after, err := r.audited()
	if err != nil {
		return m, err
	}
	m.requests = map[string]int{}
	for kind, n := range after {
		m.requests[kind] = n - before[kind]
	}
	steps, err := logs.steps()
	if err != nil {
		return m, err
	}
	m.nodes = steps[handover.StepResumed].Sub(steps[handover.StepConnected])
	copied := steps[handover.StepPerformed].Sub(steps[handover.StepPrepared])
	m.rate = stream.bytes / (1 << 20) / copied.Seconds()
	return m, r.tidy(ctx, name)
}

// nodeOf returns the name of an instance's node.
func (r *rig) nodeOf(ctx context.Context, name string) (string, error) {
	at, err := r.Kubectl(ctx, "get", "vmi", name, "--namespace="+namespace, "-o", "jsonpath={.status.nodeName}")
	return strings.TrimSpace(at), err
}

// succeeds waits until a migration has succeeded.
func (r *rig) succeeds(ctx context.Context, name string) error {
	for {
		o, err := r.client.Resource(vmims).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read migration %s: %w", name, err)
		}
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		switch phase {
		case "Succeeded":
			return nil
		case "Failed":
			why, _, _ := unstructured.NestedString(o.Object, "status", "migrationState", "failureReason")
			return fmt.Errorf("migration %s failed: %s", name, why)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("wait for migration %s, which is %s: %w", name, phase, err)
		}
	}
}

// tidy waits until an instance has one pod: the source's goes after its guest.
func (r *rig) tidy(ctx context.Context, name string) error {
	for {
		out, err := r.Kubectl(ctx, "get", "pods", "--namespace="+namespace, "--selector=vm.kubevirt.io/name="+name, "-o", "name")
		if err != nil || len(strings.Fields(out)) == 1 {
			return err
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the end of the source's pod: %w", err)
		}
	}
}

// logs are the ends of both shims' logs.
type logs []*os.File

// openLogs opens the logs at their ends.
func openLogs(nodes ...*node.Node) (all logs, err error) {
	for _, n := range nodes {
		f, err := os.Open(filepath.Join(n.Dir(), "log", node.Shim+".log"))
		if err != nil {
			return nil, err
		}
		if _, err := f.Seek(0, io.SeekEnd); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

func (l logs) close() {
	for _, f := range l {
		f.Close()
	}
}

// stepLine is the line of a shim's log about a step of a migration.
var stepLine = regexp.MustCompile(`(?m)^time=(\S+) .*msg="a migration's step".* step="([^"]+)"`)

// steps returns when the steps of a migration were logged since the logs were opened.
func (l logs) steps() (map[handover.Step]time.Time, error) {
	all := map[handover.Step]time.Time{}
	for _, f := range l {
		text, err := io.ReadAll(f)
		if err != nil {
			return nil, err
		}
		for _, m := range stepLine.FindAllStringSubmatch(string(text), -1) {
			at, err := time.Parse(time.RFC3339Nano, m[1])
			if err != nil {
				return nil, fmt.Errorf("the shim's log: %q: %w", m[0], err)
			}
			all[handover.Step(m[2])] = at
		}
	}
	for _, step := range []handover.Step{handover.StepConnected, handover.StepPrepared, handover.StepPerformed, handover.StepResumed} {
		if all[step].IsZero() {
			return nil, fmt.Errorf("the shims' logs have no step %q", step)
		}
	}
	return all, nil
}

// stream is what a migration costs its nodes.
type stream struct {
	bytes float64 // received by the target's node
	grew  float64 // the shims, at most, in MiB
	err   error
}

// watchStream looks at both nodes until its result is asked for.
func watchStream(ctx context.Context, source, target *node.Node) (result func() stream) {
	var s stream
	before, err := received(target)
	weight, err2 := shims(source, target)
	s.err = errors.Join(err, err2)
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil && s.err == nil {
			now, err := shims(source, target)
			s.grew, s.err = max(s.grew, now-weight), err
			_ = sleep(ctx, 50*time.Millisecond)
		}
	})
	return func() stream {
		cancel()
		watch.Wait()
		now, err := received(target)
		s.bytes, s.err = now-before, errors.Join(s.err, err)
		return s
	}
}

// received returns the bytes that a node's link has received.
func received(n *node.Node) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", n.PID()))
	if err != nil {
		return 0, fmt.Errorf("read what %s received: %w", n.Name(), err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "eth0:" {
			return strconv.ParseFloat(fields[1], 64)
		}
	}
	return 0, fmt.Errorf("%s has no link eth0", n.Name())
}

// shims weighs the resident memory of the shims of some nodes, in MiB.
func shims(nodes ...*node.Node) (all float64, err error) {
	for _, n := range nodes {
		states, err := n.Components()
		if err != nil {
			return 0, err
		}
		for _, s := range states {
			if s.Name != node.Shim {
				continue
			}
			one, err := resident(fmt.Sprintf("/proc/%d/root/proc/%d/status", n.PID(), s.PID))
			if err != nil {
				return 0, err
			}
			all += one
		}
	}
	return all, nil
}

// resident returns a process's resident memory in MiB.
func resident(status string) (float64, error) {
	text, err := os.ReadFile(status)
	if err != nil {
		return 0, fmt.Errorf("weigh a shim: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("weigh a shim: %s has no VmRSS", status)
}
