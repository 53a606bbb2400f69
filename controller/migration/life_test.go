package migration

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// maxRequests is how many requests a migration of a few seconds may need.
const maxRequests = 22

// TestSuccess follows a migration from its creation to the removal of the source's pod,
// and counts what it costs.
func TestSuccess(t *testing.T) {
	g := newRig(t)
	g.running()
	first := g.source().Name
	m := g.migrate()
	g.reconcile()
	target := g.target()
	if target == nil || target.Annotations[order.Annotation] != string(m.UID) || target.Labels[kubevirt.MigrationJobLabel] != string(m.UID) {
		t.Fatalf("target pod: %+v", target)
	}
	if target.Spec.NodeSelector["zone"] != "b" || target.Spec.Affinity.PodAntiAffinity == nil || len(target.Spec.ReadinessGates) != 1 {
		t.Errorf("target pod: %+v", target.Spec)
	}
	if got := pod.Current(g.vmi()); got != first || len(g.vmi().Status.ActivePods) != 1 {
		t.Errorf("the instance's pod is %s before its guest has left", got)
	}
	g.boot(target, "node2", "10.0.0.2")
	g.reconcile()
	if s := g.migration().Status; s.Phase != kubevirt.MigrationRunning || s.MigrationState.TargetNodeAddress != "10.0.0.2:4711" {
		t.Fatalf("status: %+v", s)
	}
	if s := g.vmi().Status.MigrationState; s == nil || s.StartTimestamp == nil || s.TargetNode != "node2" || s.MigrationUID != m.UID {
		t.Errorf("the instance's state: %+v", s)
	}
	for range 3 { // it copies
		wait := g.reconcile().RequeueAfter
		if wait < firstPoll {
			t.Errorf("polls again after %s", wait)
		}
		g.now = g.now.Add(wait)
	}
	g.nodes.take()
	g.end(g.source(), 0, "Migrated") // its kubelet is faster than the controller
	g.reconcile()
	g.reconcile()
	vmi, s := g.vmi(), g.migration().Status
	if s.Phase != kubevirt.MigrationSucceeded || !s.MigrationState.Completed || s.MigrationState.Failed || s.MigrationState.EndTimestamp == nil {
		t.Errorf("status: %+v %+v", s, s.MigrationState)
	}
	if vmi.Status.Phase != kubevirt.Running || vmi.Status.NodeName != "node2" || pod.Current(vmi) != target.Name ||
		vmi.Status.ActivePods[target.UID] != "node2" || vmi.Status.Interfaces[0].IP != "10.0.0.2" {
		t.Errorf("instance: %+v", vmi.Status)
	}
	if p := g.pod(first); p != nil {
		t.Errorf("the source's pod is still there: %+v", p.ObjectMeta)
	}
	var phases []string
	for _, p := range s.PhaseTransitionTimestamps {
		phases = append(phases, string(p.Phase))
	}
	if got := strings.Join(phases, " "); got != "Pending Scheduling Scheduled PreparingTarget TargetReady Running Succeeded" {
		t.Errorf("phases: %s", got)
	}
	events := g.Events()
	for _, want := range []string{"SuccessfulCreate Created migration target pod", "SuccessfulMigration", "Migrated The VirtualMachineInstance migrated to node node2."} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %s in\n%s", want, events)
		}
	}
	writes := g.Writes()
	requests := len(strings.Split(writes, ", ")) + len(g.nodes.orders) + len(strings.Split(events, "\n"))
	t.Logf("%d requests", requests)
	if requests > maxRequests {
		t.Errorf("%d requests: %s; %v;\n%s", requests, writes, g.nodes.orders, events)
	}
}

// TestMode: a migration's mode says whether the guest is paused while it is copied.
func TestMode(t *testing.T) {
	for paused, want := range map[bool]kubevirt.MigrationMode{false: kubevirt.MigrationPreCopy, true: kubevirt.MigrationPaused} {
		g := newRig(t)
		g.nodes.paused = paused
		g.running()
		g.to(kubevirt.MigrationRunning)
		if got := g.migration().Status.MigrationState.Mode; got != want {
			t.Errorf("paused %t: mode %s", paused, got)
		}
	}
}

// TestPausedLater: the mode changes when the source has paused the guest.
func TestPausedLater(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationRunning)
	g.nodes.paused = true
	g.now = g.now.Add(2 * patience)
	g.reconcile()
	if s := g.migration().Status; s.Phase != kubevirt.MigrationRunning || s.MigrationState.Mode != kubevirt.MigrationPaused {
		t.Errorf("phase %s, mode %s", s.Phase, s.MigrationState.Mode)
	}
}

// TestAsksAtReasons: events that say nothing of the guest are no reason to ask nodes, and a target's report of
// its VM is one.
func TestAsksAtReasons(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationRunning)
	g.nodes.orders = nil
	asked := func(want int) {
		t.Helper()
		if len(g.nodes.orders) != want {
			t.Errorf("orders %v; want %d", g.nodes.orders, want)
		}
	}
	wait := g.reconcile().RequeueAfter
	if wait < firstPoll || wait > lastPoll {
		t.Errorf("asks after %s", wait)
	}
	g.now = g.now.Add(wait / 2)
	if rest := g.reconcile().RequeueAfter; rest > wait/2 {
		t.Errorf("asks after %s more", rest)
	}
	asked(0)
	fakecluster.Change(t, g.Cluster, g.target(), func(p *corev1.Pod) {
		for i := range p.Status.Conditions {
			if p.Status.Conditions[i].Type == condition.VMReady {
				p.Status.Conditions[i].Status = corev1.ConditionFalse
			}
		}
	})
	g.reconcile()
	g.reconcile()
	asked(1)
	g.now = g.now.Add(lastPoll)
	g.reconcile()
	if len(g.nodes.orders) < 2 {
		t.Errorf("orders %v", g.nodes.orders)
	}
	g.nodes.take()
	g.settle()
}

// TestBackAndForth: the next migration starts from where the last one ended.
func TestBackAndForth(t *testing.T) {
	g := newRig(t)
	g.running()
	for i := range 3 {
		before := pod.Current(g.vmi())
		g.to(kubevirt.MigrationRunning)
		g.nodes.take()
		if m := g.settle(); m.Status.Phase != kubevirt.MigrationSucceeded || m.Status.MigrationState.SourcePod != before {
			t.Fatalf("%d: %+v", i, m.Status.MigrationState)
		}
		g.end(g.pod(before), 0, "Migrated")
		g.reconcile()
		g.reconcile()
		if g.pod(before) != nil || g.pod(pod.Current(g.vmi())) == nil {
			t.Errorf("%d: the instance has pod %s, which came from %s", i, pod.Current(g.vmi()), before)
		}
		if err := g.Delete(t.Context(), g.migration()); err != nil {
			t.Fatal(err)
		}
		g.reconcile()
		if g.migration() != nil {
			t.Errorf("%d: the ended migration cannot be deleted", i)
		}
	}
}

// TestNodeAddress: a target may be reached at its node's address, which the order names.
func TestNodeAddress(t *testing.T) {
	g := newRig(t)
	g.running()
	g.nodes.answer = map[string]string{order.Receive: `{"fingerprint": "` + strings.Repeat("ab", 32) + `", "address": "192.0.2.7:49152"}`}
	g.migrate()
	g.reconcile()
	g.boot(g.target(), "node2", "10.0.0.2")
	fakecluster.Change(g.t, g.Cluster, g.target(), func(p *corev1.Pod) { p.Status.HostIP = "192.0.2.7" })
	g.reconcile()
	if s := g.migration().Status; s.Phase != kubevirt.MigrationRunning || s.MigrationState.TargetNodeAddress != "192.0.2.7:49152" {
		t.Errorf("status: %+v", s)
	}
	if got := g.nodes.received.Node.String(); got != "192.0.2.7" {
		t.Errorf("the order names the node's address %s", got)
	}
}

// TestAddressMoves: the pod that has the guest says so to plug-ins of CNI that move its address.
func TestAddressMoves(t *testing.T) {
	for _, moves := range []bool{true, false} {
		g := newRig(t)
		vmi := g.running()
		if moves {
			fakecluster.Change(g.t, g.Cluster, vmi, func(vmi *instance) {
				metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, kubevirt.AllowPodBridgeNetworkLiveMigrationAnnotation, "")
			})
		}
		g.to(kubevirt.MigrationRunning)
		target := g.target()
		if _, early := target.Annotations[kubevirt.MigrationTargetReadyTimestamp]; early {
			t.Error("the target's pod is announced before it has the guest")
		}
		g.nodes.take()
		g.end(g.source(), 0, "Migrated")
		g.settle()
		if got := g.pod(target.Name).Annotations[kubevirt.MigrationTargetReadyTimestamp]; (got != "") != moves {
			t.Errorf("with an address that moves %t, the target's pod has the time %q", moves, got)
		}
	}
}

// TestSourceHearsOfTheEnd: a migration whose target's pod had a network, and never waited for the guest, ends with an order to
// the source, which announces the guest again. It ends without an answer, too.
func TestSourceHearsOfTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*rig)
		want bool
	}{
		"no node": {func(*rig) {}, false},
		"timeout": {func(g *rig) { g.bind("node2") }, true},
		"deaf":    {func(g *rig) { g.bind("node2"); g.nodes.fail[order.Cancel] = errors.New("no route to host") }, true},
		"cancel": {func(g *rig) {
			g.bind("node2")
			if err := g.Delete(t.Context(), g.migration()); err != nil {
				t.Fatal(err)
			}
		}, true},
		"the target dies": {func(g *rig) { g.bind("node2"); g.end(g.target(), 1, "Error") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.running()
			g.to(kubevirt.MigrationScheduling)
			tt.do(g)
			g.now = g.target().CreationTimestamp.Add(pendingFor + time.Second)
			g.settle()
			if got := g.nodes.gave(order.Cancel); got != tt.want {
				t.Errorf("orders %v", g.nodes.orders)
			}
			if s := g.vmi().Status.MigrationState; s == nil || !s.Failed {
				t.Errorf("%+v", s)
			}
		})
	}
}

// bind does the scheduler's work for the target's pod.
func (g *rig) bind(node string) {
	fakecluster.Change(g.t, g.Cluster, g.target(), func(p *corev1.Pod) { p.Spec.NodeName = node })
}

// TestFailures: whatever fails before the target has the guest, the instance runs on in
// its pod, the target's pod goes, and the migration says why.
func TestFailures(t *testing.T) {
	running := func(g *rig) { g.to(kubevirt.MigrationRunning) }
	for name, tt := range map[string]struct {
		do   func(*rig)
		want string
	}{
		"a node without the control": {func(g *rig) {
			g.nodes.fail[order.Identify] = errors.New(`there is no machine control "nodevirt.io/migrate-identify"`)
			g.to(kubevirt.MigrationPreparingTarget)
		}, "there is no machine control"},
		"no answer of the target": {func(g *rig) {
			g.nodes.fail[order.Receive] = errors.New("no route to host")
			g.migrate()
			g.reconcile()
			g.boot(g.target(), "node2", "10.0.0.2")
		}, "no route to host"},
		"another's address": {func(g *rig) {
			g.nodes.answer = map[string]string{order.Receive: `{"fingerprint": "` + strings.Repeat("ab", 32) + `", "address": "10.9.9.9:22"}`}
			g.migrate()
			g.reconcile()
			g.boot(g.target(), "node2", "10.0.0.2")
		}, "neither the pod's nor its node's"},
		"no fingerprint": {func(g *rig) {
			g.nodes.answer = map[string]string{order.Identify: `{"fingerprint": "x", "guest": {}}`}
			g.migrate()
			g.reconcile()
			g.boot(g.target(), "node2", "10.0.0.2")
		}, "no fingerprint"},
		"Send is refused": {func(g *rig) {
			g.nodes.fail[order.Send] = errors.New("the VM is paused")
			g.migrate()
			g.reconcile()
			g.boot(g.target(), "node2", "10.0.0.2")
			g.reconcile()
		}, "the VM is paused"},
		"never scheduled": {func(g *rig) {
			g.to(kubevirt.MigrationScheduling)
			fakecluster.Change(g.t, g.Cluster, g.target(), func(p *corev1.Pod) {
				p.CreationTimestamp = metav1.NewTime(g.now)
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available",
				}}
			})
		}, "0/2 nodes are available"},
		"the target does not start": {func(g *rig) {
			g.to(kubevirt.MigrationScheduling)
			g.end(g.target(), 1, "Error")
		}, "target pod shutdown"},
		"the copy fails": {func(g *rig) {
			running(g)
			g.nodes.states[g.nodes.sourcePod], g.nodes.states[g.nodes.targetPod], g.nodes.reason = stateKept, stateRefused, "no space left\x00"
		}, "no space left"},
		"the target dies": {func(g *rig) { running(g); g.end(g.target(), 1, "Error") }, "target pod shutdown"},
		"the target's node is gone": {func(g *rig) {
			running(g)
			g.nodes.states[g.nodes.sourcePod], g.nodes.unsettled = stateHandedOver, true
			g.deleteNode("node2", corev1.ConditionUnknown)
		}, "node node2 is gone"},
		"the target refused a guest that was handed over": {func(g *rig) {
			running(g)
			g.nodes.states[g.nodes.sourcePod], g.nodes.states[g.nodes.targetPod] = stateHandedOver, stateRefused
			g.nodes.unsettled = true
		}, "failed"},
		"no record": {func(g *rig) { running(g); clear(g.nodes.states) }, "no record"},
		"a state that is none": {func(g *rig) {
			running(g)
			g.nodes.states[g.nodes.sourcePod], g.nodes.states[g.nodes.targetPod] = stateKept, "everything"
			g.nodes.answer = nil
			g.now = g.now.Add(time.Minute)
			g.reconcile()
			g.nodes.states[g.nodes.targetPod] = stateIncoming
		}, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.running()
			tt.do(g)
			m := g.settle()
			s := m.Status.MigrationState
			if m.Status.Phase != kubevirt.MigrationFailed || !s.Failed || !strings.Contains(s.FailureReason, tt.want) {
				t.Errorf("status: %+v %+v", m.Status, s)
			}
			g.stays()
		})
	}
}

// TestUnschedulable: an event says why a migration waits, and the migration continues once
// there is room.
func TestUnschedulable(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationScheduling)
	g.Events()
	fakecluster.Change(t, g.Cluster, g.target(), func(p *corev1.Pod) {
		p.CreationTimestamp = metav1.NewTime(g.now)
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available",
		}}
	})
	if wait := g.reconcile().RequeueAfter; wait <= 0 || wait > unschedulableFor {
		t.Errorf("it looks again after %s", wait)
	}
	if events := g.Events(); !strings.Contains(events, "migrationTargetPodUnschedulable") || !strings.Contains(events, "0/2 nodes are available") {
		t.Errorf("events: %s", events)
	}
	if m := g.migration(); m.Status.Phase != kubevirt.MigrationScheduling {
		t.Errorf("status: %+v", m.Status)
	}
	g.boot(g.target(), "node2", "10.0.0.2")
	g.reconcile()
	if m := g.migration(); m.Status.Phase != kubevirt.MigrationRunning {
		t.Errorf("with room: %+v", m.Status)
	}
}

// TestNoSuitableCPU: an event says that no other node has the CPU that a guest has from its node.
func TestNoSuitableCPU(t *testing.T) {
	const label = kubevirt.SupportedHostModelMigrationCPU + "EPYC"
	for name, tt := range map[string]struct {
		model  string
		labels map[string]map[string]string // of nodes that support the CPU
		warned bool
	}{
		"no node":         {kubevirt.CPUModeHostModel, nil, true},
		"only its own":    {kubevirt.CPUModeHostModel, map[string]map[string]string{"node1": {label: "true"}}, true},
		"another node":    {kubevirt.CPUModeHostModel, map[string]map[string]string{"node1": {label: "true"}, "node2": {label: "true"}}, false},
		"any CPU is good": {kubevirt.CPUModeHostPassthrough, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			fakecluster.Change(t, g.Cluster, g.running(), func(v *instance) { v.Spec.Domain.CPU = &kubevirt.CPU{Model: tt.model} })
			for _, node := range []string{"node1", "node2"} {
				fakecluster.Change(t, g.Cluster, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, func(n *corev1.Node) {
					n.Labels = map[string]string{}
					maps.Copy(n.Labels, tt.labels[node])
					if node == "node1" {
						n.Labels[kubevirt.HostModelCPULabel+"EPYC"] = "true"
					}
				})
			}
			g.to(kubevirt.MigrationScheduling)
			events := g.Events()
			if got := strings.Contains(events, "NoSuitableNodesForHostModelMigration"); got != tt.warned {
				t.Errorf("events: %s", events)
			}
		})
	}
}

// TestPodLimits: annotations of a migration replace the limits of its target's pod.
func TestPodLimits(t *testing.T) {
	const usual = time.Minute
	for text, want := range map[string]time.Duration{
		"": usual, "0": usual, "-5": usual, "1h": usual, "130": 130 * time.Second, "2000000000": longestLimit, "99999999999999999999": usual,
	} {
		m := new(kubevirt.VirtualMachineInstanceMigration)
		m.Annotations = map[string]string{kubevirt.MigrationPendingPodTimeoutSecondsAnnotation: text}
		if got := limitOf(m, kubevirt.MigrationPendingPodTimeoutSecondsAnnotation, usual); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationScheduling)
	fakecluster.Change(t, g.Cluster, g.target(), func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(g.now) })
	fakecluster.Change(t, g.Cluster, g.migration(), func(m *kubevirt.VirtualMachineInstanceMigration) {
		m.Annotations = map[string]string{kubevirt.MigrationPendingPodTimeoutSecondsAnnotation: "130"}
	})
	g.now = g.now.Add(129 * time.Second)
	if wait := g.reconcile().RequeueAfter; wait != time.Second || g.migration().Status.Phase != kubevirt.MigrationScheduling {
		t.Errorf("it looks again after %s: %+v", wait, g.migration().Status)
	}
	g.now = g.now.Add(time.Second)
	g.reconcile()
	if m := g.migration(); m.Status.Phase != kubevirt.MigrationFailed {
		t.Errorf("after the limit: %+v", m.Status)
	}
	g.stays()
}

// stays checks that the instance runs on in its first pod, alone.
func (g *rig) stays() {
	g.t.Helper()
	g.reconcile()
	vmi := g.vmi()
	if vmi.Status.Phase != kubevirt.Running || vmi.Status.NodeName != "node1" || pod.Current(vmi) != pod.Name(vmi) || instances.Migrating(vmi) {
		g.t.Errorf("instance: %+v", vmi.Status)
	}
	if s := g.source(); s == nil || s.DeletionTimestamp != nil {
		g.t.Errorf("the source's pod is gone: %+v", s)
	}
	var pods corev1.PodList
	if err := g.List(g.t.Context(), &pods); err != nil {
		g.t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Name != pod.Name(vmi) && p.DeletionTimestamp == nil {
			g.t.Errorf("pod %s remains", p.Name)
		}
	}
}

// TestUnsettled: no node runs the guest, and the migration says what to do, until the
// target answers.
func TestUnsettled(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationRunning)
	g.nodes.states[g.nodes.sourcePod], g.nodes.unsettled, g.nodes.deaf = stateHandedOver, true, g.nodes.targetPod
	for range 20 {
		g.now = g.now.Add(time.Minute)
		g.reconcile()
	}
	m := g.migration()
	if m.IsFinal() || len(m.Status.Conditions) != 1 || m.Status.Conditions[0].Type != conditionUnsettled ||
		!strings.Contains(m.Status.Conditions[0].Message, "node2") || g.nodes.gave(order.Decide) {
		t.Errorf("status: %+v", m.Status)
	}
	if e := g.Events(); strings.Count(e, "MigrationUnsettled") != 1 {
		t.Errorf("events: %s", e)
	}
	g.nodes.deaf = ""
	g.nodes.take()
	if m := g.settle(); m.Status.Phase != kubevirt.MigrationSucceeded || len(m.Status.Conditions) != 0 {
		t.Errorf("status: %+v", m.Status)
	}
}

// TestLostTarget: a source that has its guest back proves that a target whose node is lost never got it. The migration
// ends, and the target's pod is no obstacle to the next start.
func TestLostTarget(t *testing.T) {
	for name, cancel := range map[string]bool{"fails": false, "is cancelled": true} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.running()
			g.to(kubevirt.MigrationRunning)
			target := g.target()
			g.nodes.deaf = g.nodes.targetPod
			g.ready("node2", corev1.ConditionUnknown)
			if cancel {
				if err := g.Delete(t.Context(), g.migration()); err != nil {
					t.Fatal(err)
				}
			} else {
				g.nodes.states[g.nodes.sourcePod], g.nodes.reason = stateKept, "broken pipe"
			}
			for range 3 {
				g.now = g.now.Add(15 * time.Second)
				g.reconcile()
			}
			if m := g.migration(); m != nil && m.Status.Phase != kubevirt.MigrationFailed {
				t.Fatalf("status: %+v", m.Status)
			}
			if g.pod(target.Name) != nil {
				t.Error("the target's pod is still there")
			}
			g.stays()
		})
	}
}

// TestLostBefore: a migration whose target's node is lost before the guest is sent fails at once.
func TestLostBefore(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationPreparingTarget)
	target := g.target()
	g.ready("node2", corev1.ConditionUnknown)
	g.reconcile()
	g.reconcile()
	if m := g.migration(); m.Status.Phase != kubevirt.MigrationFailed || !strings.Contains(m.Status.MigrationState.FailureReason, "node2") {
		t.Errorf("status: %+v", m.Status)
	}
	if g.pod(target.Name) != nil {
		t.Error("the target's pod is still there")
	}
	g.stays()
}

// TestUnknownSource: a source without a record of the migration proves nothing, and the migration names the node that it
// waits for.
func TestUnknownSource(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationRunning)
	g.nodes.deaf = g.nodes.targetPod
	delete(g.nodes.states, g.nodes.sourcePod)
	for range 20 {
		g.now = g.now.Add(15 * time.Second)
		g.reconcile()
	}
	m := g.migration()
	if m.IsFinal() || len(m.Status.Conditions) != 1 || !strings.Contains(m.Status.Conditions[0].Message, "node2, which may have the guest") {
		t.Errorf("status: %+v", m.Status)
	}
}

// TestDeletedTarget: the target's Node is deleted while its kubelet lives, so its guest may run. The source resumes
// nothing until the target was silent for its grace period and longer.
func TestDeletedTarget(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationRunning)
	g.nodes.states[g.nodes.sourcePod], g.nodes.unsettled, g.nodes.deaf = stateHandedOver, true, g.nodes.targetPod
	g.deleteNode("node2", corev1.ConditionTrue)
	for range 4 {
		g.reconcile()
		g.now = g.now.Add(15 * time.Second)
	}
	if m := g.migration(); m.IsFinal() || g.nodes.gave(order.Decide) {
		t.Fatalf("the source got the guest back: %+v", m.Status)
	}
	if m := g.settle(); m.Status.Phase != kubevirt.MigrationFailed || g.nodes.states[g.nodes.sourcePod] != stateKept {
		t.Errorf("status: %+v, nodes %v", m.Status, g.nodes.states)
	}
}

// TestAnswerOfTheKubelet: a target that restarted, and whose container has ended, gives the source no answer
// any more. The reason of the end is one, unless the kubelet knows of none: then no node runs the guest.
func TestAnswerOfTheKubelet(t *testing.T) {
	for reason, want := range map[string]struct {
		phase  kubevirt.VirtualMachineInstanceMigrationPhase
		source string
	}{
		condition.ReasonMigrationRefused: {kubevirt.MigrationFailed, stateKept},
		condition.ReasonCompleted:        {kubevirt.MigrationSucceeded, stateHandedOver}, // its pod is deleted
		condition.ReasonOOMKilled:        {kubevirt.MigrationSucceeded, stateHandedOver},
		"ContainerStatusUnknown":         {kubevirt.MigrationRunning, stateHandedOver},
	} {
		t.Run(reason, func(t *testing.T) {
			g := newRig(t)
			g.running()
			g.to(kubevirt.MigrationRunning)
			g.nodes.states[g.nodes.sourcePod], g.nodes.unsettled, g.nodes.deaf = stateHandedOver, true, g.nodes.targetPod
			g.reconcile()
			g.end(g.target(), 1, reason)
			for range 5 {
				g.now = g.now.Add(time.Minute)
				g.reconcile()
			}
			m := g.migration()
			if m.Status.Phase != want.phase || g.nodes.states[g.nodes.sourcePod] != want.source {
				t.Errorf("the source is %s: %+v", g.nodes.states[g.nodes.sourcePod], m.Status)
			}
		})
	}
}

// TestSilentSource: a source that does not answer may have handed its guest over. So the migration waits for it,
// however long that takes, and the target's refusal then lets it resume the guest.
func TestSilentSource(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationRunning)
	g.nodes.states[g.nodes.sourcePod], g.nodes.states[g.nodes.targetPod] = stateHandedOver, stateRefused
	g.nodes.unsettled, g.nodes.deaf = true, g.nodes.sourcePod
	for range 20 {
		g.now = g.now.Add(time.Minute)
		g.reconcile()
	}
	m := g.migration()
	if m.IsFinal() || len(m.Status.Conditions) != 1 || m.Status.Conditions[0].Reason != "SourceSilent" ||
		!strings.Contains(m.Status.Conditions[0].Message, "node1") {
		t.Errorf("status: %+v", m.Status)
	}
	g.nodes.deaf = ""
	if m := g.settle(); m.Status.Phase != kubevirt.MigrationFailed || len(m.Status.Conditions) != 0 || g.nodes.states[g.nodes.sourcePod] != stateKept {
		t.Errorf("status: %+v, nodes %v", m.Status, g.nodes.states)
	}
	g.stays()
}

// TestCancel: a migration that is deleted in any phase leaves the guest where it is,
// unless the target has it.
func TestCancel(t *testing.T) {
	for _, phase := range []kubevirt.VirtualMachineInstanceMigrationPhase{
		kubevirt.MigrationPending, kubevirt.MigrationScheduling, kubevirt.MigrationPreparingTarget, kubevirt.MigrationRunning,
	} {
		t.Run(string(phase), func(t *testing.T) {
			g := newRig(t)
			g.running()
			g.to(phase)
			if err := g.Delete(t.Context(), g.migration()); err != nil {
				t.Fatal(err)
			}
			if m := g.settle(); m != nil {
				t.Errorf("%+v remains", m.Status)
			}
			g.stays()
			if e := g.Events(); !strings.Contains(e, reasonCancelled) {
				t.Errorf("events: %s", e)
			}
			s := g.vmi().Status.MigrationState
			if phase != kubevirt.MigrationPending && (s.Completed || !s.Failed || !s.AbortRequested || s.AbortStatus != kubevirt.MigrationAbortSucceeded) {
				t.Errorf("state: %+v", s)
			}
		})
	}
	t.Run("too late", func(t *testing.T) {
		g := newRig(t)
		g.running()
		g.to(kubevirt.MigrationRunning)
		g.nodes.take()
		if err := g.Delete(t.Context(), g.migration()); err != nil {
			t.Fatal(err)
		}
		g.settle()
		if s := g.vmi().Status; s.NodeName != "node2" || s.MigrationState.Failed || s.MigrationState.AbortStatus != kubevirt.MigrationAbortFailed {
			t.Errorf("%+v", s.MigrationState)
		}
	})
}

// TestEnds: the end of the guest, or of the instance, ends the migration.
func TestEnds(t *testing.T) {
	for _, phase := range []kubevirt.VirtualMachineInstanceMigrationPhase{kubevirt.MigrationScheduling, kubevirt.MigrationRunning} {
		t.Run("power off in "+string(phase), func(t *testing.T) {
			g := newRig(t)
			g.running()
			g.to(phase)
			g.end(g.source(), 0, "Completed")
			if m := g.settle(); m.Status.Phase != kubevirt.MigrationFailed || m.Status.MigrationState.Completed != (phase == kubevirt.MigrationScheduling) {
				t.Errorf("%+v", m.Status)
			}
			g.reconcile()
			if vmi := g.vmi(); vmi.Status.Phase != kubevirt.Succeeded || pod.Current(vmi) != pod.Name(vmi) {
				t.Errorf("%+v", vmi.Status)
			}
		})
		t.Run("deletion in "+string(phase), func(t *testing.T) {
			g := newRig(t)
			g.running()
			g.to(phase)
			target := g.target()
			if err := g.Delete(t.Context(), g.vmi()); err != nil {
				t.Fatal(err)
			}
			g.settle()
			for _, p := range []*corev1.Pod{g.source(), g.pod(target.Name)} {
				if p != nil && p.DeletionTimestamp == nil {
					t.Errorf("pod %s runs on", p.Name)
				}
			}
			g.end(g.source(), 0, "Completed")
			g.reconcile()
			g.reconcile()
			if p := g.pod(target.Name); p != nil { // one without a node ends at once
				if g.vmi() == nil {
					t.Fatal("the instance is gone before its second pod")
				}
				g.end(p, 1, "Error")
			}
			g.reconcile()
			g.reconcile()
			if g.vmi() != nil {
				t.Error("the instance remains")
			}
		})
	}
	t.Run("on the target, before the controller knows of it", func(t *testing.T) {
		g := newRig(t)
		g.running()
		g.to(kubevirt.MigrationRunning)
		g.nodes.take()
		g.end(g.source(), 0, "Migrated")
		g.end(g.target(), 0, "Completed")
		if m := g.settle(); m.Status.Phase != kubevirt.MigrationSucceeded {
			t.Errorf("%+v", m.Status)
		}
		g.reconcile()
		if vmi := g.vmi(); vmi.Status.Phase != kubevirt.Succeeded || vmi.Status.NodeName != "node2" {
			t.Errorf("%+v", vmi.Status)
		}
	})
}

// TestRestarts crashes the controller at each of its writes, before and after it, in a
// migration that succeeds and in one that fails: another controller continues.
func TestRestarts(t *testing.T) {
	for _, succeeds := range []bool{true, false} {
		for crash := 0; ; crash++ {
			if crash > 60 {
				t.Fatal("so many writes")
			}
			if !crashAt(t, succeeds, crash) {
				break
			}
		}
	}
}

// crashAt reports whether there was a write of that number.
func crashAt(t *testing.T, succeeds bool, crash int) (reached bool) {
	t.Run(fmt.Sprintf("succeeds %t, write %d", succeeds, crash), func(t *testing.T) {
		g := newRig(t)
		g.running(persistent)
		state := pod.StateOf(g.source())
		g.migrate()
		n := 0
		g.Fail = func(string, client.Object) error {
			n++
			if n-1 == crash {
				reached = true
				return errInjected
			}
			return nil
		}
		for range 60 {
			g.reconcile()
			if reached {
				g.restart()
			}
			if target := g.target(); target != nil && len(target.Status.ContainerStatuses) == 0 {
				g.boot(target, "node2", "10.0.0.2")
			}
			m := g.migration()
			if m.IsFinal() {
				break
			}
			if m.Status.Phase == kubevirt.MigrationRunning {
				if succeeds {
					g.nodes.take()
					g.end(g.source(), 0, "Migrated")
				} else {
					g.nodes.states[g.nodes.sourcePod], g.nodes.states[g.nodes.targetPod] = stateKept, stateRefused
				}
			}
			g.now = g.now.Add(time.Second)
		}
		g.reconcile()
		g.reconcile()
		switch m := g.migration(); {
		case succeeds && (m.Status.Phase != kubevirt.MigrationSucceeded || g.vmi().Status.NodeName != "node2" || g.vmi().Status.Phase != kubevirt.Running):
			t.Errorf("%+v; %+v", m.Status, g.vmi().Status)
		case !succeeds && m.Status.Phase != kubevirt.MigrationFailed:
			t.Errorf("%+v", m.Status)
		case !succeeds:
			g.stays()
		default:
			state = pod.MovedStateName(name, g.migration().UID)
		}
		g.keeps(state)
	})
	return reached
}

// TestBehind: a cache that does not have the instance's state yet changes nothing.
func TestBehind(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationRunning)
	g.Behind = func(o client.Object) {
		if vmi, ok := o.(*instance); ok {
			vmi.Status.MigrationState, vmi.ResourceVersion = nil, "1"
		}
	}
	if _, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g.migration())}); err != nil {
		t.Fatal(err)
	}
	g.Behind = nil
	if m := g.migration(); m.IsFinal() {
		t.Errorf("%+v", m.Status)
	}
	g.nodes.take()
	if m := g.settle(); m.Status.Phase != kubevirt.MigrationSucceeded {
		t.Errorf("%+v", m.Status)
	}
}

// TestCutLink: the nodes do not reach each other, but the controller reaches both. The
// target's refusal lets the source resume.
func TestCutLink(t *testing.T) {
	g := newRig(t)
	g.running()
	g.to(kubevirt.MigrationRunning)
	g.nodes.states[g.nodes.sourcePod], g.nodes.unsettled = stateHandedOver, true
	if m := g.settle(); m.Status.Phase != kubevirt.MigrationFailed || !g.nodes.gave(order.Decide) || g.nodes.states[g.nodes.targetPod] != stateRefused {
		t.Errorf("%+v, nodes %v", m.Status, g.nodes.states)
	}
	g.stays()
}

// TestGarbage: the oldest ended migrations go.
func TestGarbage(t *testing.T) {
	var all []migration
	for i := range kept + 2 {
		m := migration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), CreationTimestamp: metav1.NewTime(time.Unix(int64(100-i), 0))}}
		m.Status.Phase = kubevirt.MigrationFailed
		all = append(all, m)
	}
	all[1].Status.Phase = kubevirt.MigrationRunning
	if old := oldest(all); len(old) != 1 || old[0].Name != fmt.Sprint(kept+1) {
		t.Errorf("%v", old)
	}
}
