package pool

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/pool/v1beta1"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

func healing(s api.VirtualMachinePoolAutohealingStrategy) func(*vmPool) {
	return func(pool *vmPool) { pool.Spec.Autohealing = &s }
}

// crashed says that so many starts of a VM failed in a row.
func (g *rig) crashed(name string, times int) {
	g.t.Helper()
	g.change(name, func(vm *kubevirt.VirtualMachine) {
		vm.Status.PrintableStatus = kubevirt.VirtualMachineStatusCrashLoopBackOff
		vm.Status.StartFailure = &kubevirt.VirtualMachineStartFailure{ConsecutiveFailCount: times}
	})
}

// TestHealing: a VM that fails often enough is replaced under its name, and its
// successor later each time, until one of them runs.
func TestHealing(t *testing.T) {
	g := newRig(t)
	g.add(2, healing(api.VirtualMachinePoolAutohealingStrategy{}))
	g.reconcile()
	g.start("web-1", corev1.ConditionTrue)
	g.crashed("web-0", 2)
	first := g.vm("web-0").UID
	g.reconcile()
	if g.vm("web-0").UID != first {
		t.Fatal("replaced too early")
	}
	replaced := func() {
		t.Helper()
		g.reconcile()
		g.has("web-1")
		g.gone()
		g.reconcile()
		g.has("web-0", "web-1")
	}
	g.crashed("web-0", 3)
	g.Events()
	replaced()
	if e := g.Events(); !strings.Contains(e, "Warning Autohealing Replacing VM default/web-0, which cannot start: CrashLoopBackOff") {
		t.Errorf("events: %s", e)
	}
	g.crashed("web-0", 3)
	if got := g.reconcile(); got.RequeueAfter != 10*time.Second {
		t.Errorf("%+v", got)
	}
	g.has("web-0", "web-1")
	g.now = g.now.Add(10 * time.Second)
	replaced()
	g.crashed("web-0", 3)
	if got := g.reconcile(); got.RequeueAfter != 40*time.Second {
		t.Errorf("%+v", got)
	}
	// It runs for a while.
	g.change("web-0", func(vm *kubevirt.VirtualMachine) { vm.Status.StartFailure = nil })
	g.start("web-0", corev1.ConditionTrue)
	fakecluster.Change(t, g.Cluster, g.vmi("web-0"), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.PhaseTransitionTimestamps = []kubevirt.VirtualMachineInstancePhaseTransitionTimestamp{
			{Phase: kubevirt.Running, PhaseTransitionTimestamp: metav1.NewTime(g.now.Add(-time.Minute))},
		}
	})
	g.reconcile()
	g.crashed("web-0", 3)
	replaced()
}

// TestHealingOff: without the field no VM is replaced, nor is one of a pool that is
// paused.
func TestHealingOff(t *testing.T) {
	for _, change := range []func(*vmPool){
		func(*vmPool) {},
		func(pool *vmPool) {
			pool.Spec.Autohealing, pool.Spec.Paused = new(api.VirtualMachinePoolAutohealingStrategy), true
		},
	} {
		g := newRig(t)
		g.add(1)
		g.reconcile()
		g.crashed("web-0", 9)
		g.edit(change)
		g.reconcile()
		g.has("web-0")
	}
}

// TestFailing: for how long which VM may fail.
func TestFailing(t *testing.T) {
	now := time.Now()
	ago := func(minutes int) metav1.Time { return metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute)) }
	unready := func(minutes int) kubevirt.VirtualMachineCondition {
		return kubevirt.VirtualMachineCondition{Type: kubevirt.VirtualMachineReady, Status: corev1.ConditionFalse, LastTransitionTime: ago(minutes)}
	}
	failure := func(minutes int) kubevirt.VirtualMachineCondition {
		return kubevirt.VirtualMachineCondition{Type: kubevirt.VirtualMachineFailure, Status: corev1.ConditionTrue, LastTransitionTime: ago(minutes)}
	}
	started := func(minutes int) *kubevirt.VirtualMachineInstance {
		return &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(minutes)}}
	}
	plain := api.VirtualMachinePoolAutohealingStrategy{}
	for _, c := range []struct {
		name     string
		strategy api.VirtualMachinePoolAutohealingStrategy
		status   kubevirt.VirtualMachineStatus
		vmi      *kubevirt.VirtualMachineInstance
		after    time.Duration
		fails    bool
	}{
		{"runs", plain, kubevirt.VirtualMachineStatus{PrintableStatus: kubevirt.VirtualMachineStatusRunning}, started(9), 0, false},
		{"stopped", plain, kubevirt.VirtualMachineStatus{
			PrintableStatus: kubevirt.VirtualMachineStatusStopped, Conditions: []kubevirt.VirtualMachineCondition{unready(99)},
		}, nil, 0, false},
		{"no condition yet", plain, kubevirt.VirtualMachineStatus{PrintableStatus: kubevirt.VirtualMachineStatusPvcNotFound}, nil, 5 * time.Minute, true},
		{"no node for long", plain, kubevirt.VirtualMachineStatus{
			PrintableStatus: kubevirt.VirtualMachineStatusUnschedulable, Conditions: []kubevirt.VirtualMachineCondition{unready(6)},
		}, started(6), 0, true},
		{"no node yet", plain, kubevirt.VirtualMachineStatus{
			PrintableStatus: kubevirt.VirtualMachineStatusUnschedulable, Conditions: []kubevirt.VirtualMachineCondition{unready(1)},
		}, started(1), 4 * time.Minute, true},
		{"off before", plain, kubevirt.VirtualMachineStatus{
			PrintableStatus: kubevirt.VirtualMachineStatusErrImagePull, Conditions: []kubevirt.VirtualMachineCondition{unready(999)},
		}, started(2), 3 * time.Minute, true},
		{"crashes since", plain, kubevirt.VirtualMachineStatus{
			PrintableStatus: kubevirt.VirtualMachineStatusCrashLoopBackOff, Conditions: []kubevirt.VirtualMachineCondition{unready(999), failure(3)},
		}, started(0), 2 * time.Minute, true},
		{
			"a shorter time", api.VirtualMachinePoolAutohealingStrategy{MinFailingToStartDuration: &metav1.Duration{Duration: time.Minute}},
			kubevirt.VirtualMachineStatus{
				PrintableStatus: kubevirt.VirtualMachineStatusDataVolumeError, Conditions: []kubevirt.VirtualMachineCondition{unready(1)},
			}, nil, 0, true,
		},
		{"fewer failures", api.VirtualMachinePoolAutohealingStrategy{StartUpFailureThreshold: new(uint32(1))}, kubevirt.VirtualMachineStatus{
			StartFailure: &kubevirt.VirtualMachineStartFailure{ConsecutiveFailCount: 1},
		}, nil, 0, true},
	} {
		pool := &vmPool{Spec: api.VirtualMachinePoolSpec{Autohealing: &c.strategy}}
		after, fails := failing(pool, &member{vm: &kubevirt.VirtualMachine{Status: c.status}, vmi: c.vmi}, now)
		if after != c.after || fails != c.fails {
			t.Errorf("%s: %s, %t; want %s, %t", c.name, after, fails, c.after, c.fails)
		}
	}
}
