package vmi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// unlocated are the states in which a kubelet reports a container that ran and that the node no longer has: first as one that
// waits, and as ended when the kubelet has given up the pod.
var unlocated = map[string]corev1.ContainerStatus{
	"waiting": {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}, LastTerminationState: unknownEnd},
	"ended":   {State: unknownEnd, LastTerminationState: unknownEnd},
}

var unknownEnd = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", ExitCode: 137}}

// TestNotMissing: a guest that never started, that the kubelet has evicted, or whose end it knows, is not missing.
func TestNotMissing(t *testing.T) {
	for name, tt := range map[string]struct {
		status corev1.ContainerStatus
		reason string
		want   bool
	}{
		"missing":       {unlocated["ended"], "", true},
		"never started": {corev1.ContainerStatus{State: unknownEnd}, "", false},
		"evicted":       {unlocated["ended"], "Evicted", false},
		"ended":         {corev1.ContainerStatus{State: crashed}, "", false},
		"runs":          {corev1.ContainerStatus{State: running, LastTerminationState: unknownEnd}, "", false},
	} {
		v := seen(readyNode, corev1.PodFailed)
		tt.status.Name = pod.Container
		v.pod.Status.ContainerStatuses, v.pod.Status.Reason = []corev1.ContainerStatus{tt.status}, tt.reason
		if got := v.missing(); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// unlocate does the kubelet's work when the node no longer has a pod's container.
func (g *rig) unlocate(p *corev1.Pod, s corev1.ContainerStatus) {
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		s.Name = pod.Container
		p.Status.Phase, p.Status.ContainerStatuses = corev1.PodFailed, []corev1.ContainerStatus{s}
	})
}

// left does the shim's work: it reports that a migration has taken a pod's guest.
func (g *rig) left(p *corev1.Pod, to string) {
	d := condition.Departure{Node: to, Migration: "m-2"}
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: condition.VMReady, Status: corev1.ConditionFalse, Reason: condition.ReasonMigrated, Message: d.Message(),
		})
	})
}

// TestMissingGuest: a guest whose container is missing on its node counts as ended only after the nodes have had the time to
// say where it is: after a restore of etcd it may run elsewhere, and its VirtualMachine would start a second one.
func TestMissingGuest(t *testing.T) {
	for name, state := range unlocated {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			p := g.started()
			g.unlocate(p, state)
			result := g.reconcile()
			vmi := g.vmi()
			if vmi.Status.Phase != kubevirt.Unknown || vmi.Status.Reason != ReasonGuestMissing || result.RequeueAfter != missingTime {
				t.Fatalf("phase %s, reason %s, again in %s", vmi.Status.Phase, vmi.Status.Reason, result.RequeueAfter)
			}
			if c := g.condition(kubevirt.VirtualMachineInstanceReady); !strings.Contains(c.Message, "Node node1 no longer has the VM's container") {
				t.Errorf("%+v", c)
			}
			if !controllerutil.ContainsFinalizer(g.onePod(), pod.Finalizer) {
				t.Error("the pod may go")
			}
			g.now = g.now.Add(missingTime - time.Second)
			if g.reconcile(); g.vmi().IsFinal() {
				t.Fatal("it counts as ended before the nodes had their time")
			}
			g.now = g.now.Add(time.Second)
			g.reconcile()
			c := g.condition(kubevirt.VirtualMachineInstanceReady)
			if phase := g.vmi().Status.Phase; phase != kubevirt.Failed || !strings.Contains(c.Message, "reinstalled") || strings.Contains(c.Message, "crashed") {
				t.Errorf("phase %s, %+v", phase, c)
			}
			if controllerutil.ContainsFinalizer(g.onePod(), pod.Finalizer) {
				t.Error("the pod keeps its finalizer")
			}
		})
	}
}

// TestMissingGuestElsewhere: a node that has recorded where the missing guest has gone says so in time, and no start follows.
func TestMissingGuestElsewhere(t *testing.T) {
	for name, state := range unlocated {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			p := g.started()
			g.unlocate(p, state)
			g.reconcile()
			g.left(p, "node2")
			for range 3 {
				g.reconcile()
				g.now = g.now.Add(missingTime)
			}
			vmi := g.vmi()
			if c := g.condition(kubevirt.VirtualMachineInstanceReady); vmi.Status.Phase != kubevirt.Unknown || vmi.Status.Reason != ReasonGuestElsewhere ||
				!strings.Contains(c.Message, "the guest runs on node node2") {
				t.Errorf("phase %s, reason %s, %+v", vmi.Status.Phase, vmi.Status.Reason, c)
			}
			if events := g.Events(); !strings.Contains(events, ReasonGuestMissing) || !strings.Contains(events, ReasonGuestElsewhere) {
				t.Errorf("events %s", events)
			}
		})
	}
}

// TestLeftBeforeTheKubelet: a kubelet that has not noticed a restore of etcd reports a guest that has gone. Its node's shim
// knows better, but not during a migration, whose end counts.
func TestLeftBeforeTheKubelet(t *testing.T) {
	for _, migrating := range []bool{false, true} {
		g := newRig(t)
		p := g.started()
		if migrating {
			fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
				vmi.Status.MigrationState = &kubevirt.VirtualMachineInstanceMigrationState{MigrationUID: "m-2", SourcePod: p.Name, StartTimestamp: new(metav1.NewTime(g.now))}
			})
		}
		g.left(p, "node2")
		g.reconcile()
		if vmi := g.vmi(); (vmi.Status.Reason == ReasonGuestElsewhere) == migrating {
			t.Errorf("migrating %t: phase %s, reason %q", migrating, vmi.Status.Phase, vmi.Status.Reason)
		}
	}
}

// TestMissingGuestDeleted: a user who deletes an instance whose guest is missing does not wait.
func TestMissingGuestDeleted(t *testing.T) {
	g := newRig(t)
	g.unlocate(g.started(), unlocated["ended"])
	g.reconcile()
	if err := g.Delete(t.Context(), g.vmi()); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		g.reconcile()
	}
	if vmi := g.vmi(); vmi != nil {
		t.Errorf("a deleted instance stays: %+v", vmi.Status)
	}
}

// TestMissingGuestsBound: more pods than are remembered take no more memory, and the latest one keeps its time.
func TestMissingGuestsBound(t *testing.T) {
	now := time.Now()
	m := newMissingGuests(func() time.Time { return now })
	missing := func(uid string) view {
		s := unlocated["ended"]
		s.Name = pod.Container
		return view{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: "node1"},
			Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{s}}}}
	}
	for i := range 2 * maxMissing {
		if m.wait(missing(fmt.Sprint(i))) != missingTime {
			t.Fatal("no time for pod", i)
		}
	}
	now = now.Add(missingTime)
	if wait := m.wait(missing(fmt.Sprint(2*maxMissing - 1))); wait != 0 {
		t.Errorf("the latest pod waits for another %s", wait)
	}
	if wait := m.wait(missing("0")); wait != missingTime {
		t.Errorf("a forgotten pod waits for %s", wait)
	}
}
