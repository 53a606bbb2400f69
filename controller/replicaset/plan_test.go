package replicaset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// now is the time of the tests.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// vmi is an instance, made so many seconds ago.
func vmi(name string, age int, change ...func(*instance)) *instance {
	v := &instance{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(age) * time.Second)),
	}}
	for _, c := range change {
		c(v)
	}
	return v
}

func on(node string) func(*instance) { return func(v *instance) { v.Status.NodeName = node } }

// phase is one that an instance has been in for so many seconds.
func phase(p kubevirt.VirtualMachineInstancePhase, seconds int) func(*instance) {
	return func(v *instance) {
		v.Status.Phase = p
		v.Status.PhaseTransitionTimestamps = append(v.Status.PhaseTransitionTimestamps,
			kubevirt.VirtualMachineInstancePhaseTransitionTimestamp{
				Phase: p, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second)),
			})
	}
}

func ready(status corev1.ConditionStatus, reason string) func(*instance) {
	return func(v *instance) {
		v.Status.Conditions = []kubevirt.VirtualMachineInstanceCondition{
			{Type: kubevirt.VirtualMachineInstanceReady, Status: status, Reason: reason},
		}
	}
}

func deleted(v *instance) { v.DeletionTimestamp = new(metav1.NewTime(now)) }

func names(all []*instance) string {
	var names []string
	for _, v := range all {
		names = append(names, v.Name)
	}
	return fmt.Sprint(names)
}

func TestDecide(t *testing.T) {
	running := phase(kubevirt.Running, 0)
	crashed, powered := phase(kubevirt.Failed, 0), phase(kubevirt.Succeeded, 0)
	longRun := phase(kubevirt.Running, 3600)
	for _, c := range []struct {
		name     string
		replicas int32
		all      []*instance
		wait     bool
		want     string // active, missing, remove, held
	}{
		{"none yet", 3, nil, false, "[] 3 [] []"},
		{"enough", 2, []*instance{vmi("a", 9, running), vmi("b", 9)}, false, "[a b] 0 [] []"},
		{"too many", 1, []*instance{vmi("a", 9, on("n"), running), vmi("b", 9)}, false, "[a] 0 [b] []"},
		{"to zero", 0, []*instance{vmi("a", 9, on("n"), running), vmi("b", 9)}, false, "[] 0 [b a] []"},
		{"one goes", 2, []*instance{vmi("a", 9, deleted), vmi("b", 9)}, false, "[b] 1 [] []"},
		{"one evicted", 2, []*instance{
			vmi("a", 9, running, ready(corev1.ConditionFalse, kubevirt.PodTerminatingReason)), vmi("b", 9),
		}, false, "[b] 1 [a] []"},
		{"ended", 2, []*instance{vmi("a", 9, crashed), vmi("b", 9, powered)}, false, "[] 2 [a b] []"},
		{"ended early", 3, []*instance{vmi("a", 9, crashed), vmi("b", 9)}, true, "[b] 1 [] [a]"},
		{"ended late", 3, []*instance{vmi("a", 9999, longRun, crashed), vmi("b", 9)}, true, "[b] 2 [a] []"},
		{"fewer than ended", 1, []*instance{vmi("a", 9, crashed), vmi("b", 9, crashed)}, true, "[] 0 [a] [b]"},
		{"none but ended", 0, []*instance{vmi("a", 9, crashed)}, true, "[] 0 [a] []"},
	} {
		set := &replicaSet{Spec: kubevirt.VirtualMachineInstanceReplicaSetSpec{Replicas: &c.replicas}}
		p := decide(set, c.all, c.wait, now)
		if got := fmt.Sprintf("%s %d %s %s", names(p.active), p.missing, names(p.remove), names(p.held)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		set.Spec.Paused = true
		if p := decide(set, c.all, c.wait, now); p.missing != 0 || len(p.remove) > 0 {
			t.Errorf("%s, paused: %+v", c.name, p)
		}
		set.Spec.Paused, set.DeletionTimestamp = false, new(metav1.NewTime(now))
		if p := decide(set, c.all, c.wait, now); p.missing != 0 || len(p.remove) > 0 {
			t.Errorf("%s, deleted: %+v", c.name, p)
		}
	}
	if p := decide(new(replicaSet), nil, false, now); p.missing != 1 {
		t.Errorf("without a number: %+v", p)
	}
}

func TestOrder(t *testing.T) {
	running, isReady := phase(kubevirt.Running, 0), ready(corev1.ConditionTrue, "")
	want := []*instance{
		vmi("nowhere", 9),
		vmi("starting", 9, on("n"), phase(kubevirt.Scheduled, 0)),
		vmi("unready", 9, on("n"), running, ready(corev1.ConditionFalse, "")),
		vmi("crowded-young", 1, on("n"), running, isReady),
		vmi("crowded-old", 5, on("n"), running, isReady),
		vmi("a", 1, on("m"), running, isReady),
		vmi("b", 1, on("m"), running, isReady),
		vmi("alone", 1, on("o"), running, isReady),
	}
	for range 50 {
		got := slices.Clone(want)
		slices.Reverse(got)
		got[0], got[3] = got[3], got[0]
		order(got)
		if names(got) != names(want) {
			t.Fatalf("%s, want %s", names(got), names(want))
		}
	}
}

// TestFailures: a generation of instances counts once, and one that ran long
// enough ends the count.
func TestFailures(t *testing.T) {
	var f failures
	set := &replicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", UID: "u"}}
	crashed := func(name string, made time.Time) *instance {
		return vmi(name, 0, phase(kubevirt.Failed, 0), func(v *instance) { v.CreationTimestamp = metav1.NewTime(made) })
	}
	step := func(at time.Time, wait time.Duration, grown bool, all ...*instance) {
		t.Helper()
		s, news := f.note(set, all, at)
		if s.wait(at) != wait || (news != nil) != grown {
			t.Errorf("at %s: wait %s, news %v; want %s, %t", at.Sub(now), s.wait(at), news, wait, grown)
		}
	}
	at := now
	step(at, 0, false)
	a, b := crashed("a", now.Add(-time.Minute)), crashed("b", now.Add(-time.Minute))
	step(at, 10*time.Second, true, a)
	step(at.Add(4*time.Second), 6*time.Second, false, a, b)
	at = at.Add(20 * time.Second)
	step(at, 0, false, a, b) // their successors are due
	step(at, 40*time.Second, true, crashed("c", at.Add(-time.Second)))
	at = at.Add(time.Hour)
	well := vmi("d", 0, phase(kubevirt.Running, 0), func(v *instance) {
		v.CreationTimestamp = metav1.NewTime(at.Add(-2 * time.Minute))
		v.Status.PhaseTransitionTimestamps[0].PhaseTransitionTimestamp = metav1.NewTime(at.Add(-time.Minute))
	})
	step(at, 0, false, well)
	step(at, 10*time.Second, true, crashed("e", at.Add(-time.Second)))
	f.forget(client.ObjectKeyFromObject(set))
	step(at, 0, false)
	step(at, 10*time.Second, true, crashed("e", at.Add(-time.Second)))
	other := set.DeepCopy()
	other.UID = "another of that name"
	if s, _ := f.note(other, nil, at); s.wait(at) != 0 {
		t.Errorf("another set waits %s", s.wait(at))
	}
	// The API server's clock, by which instances are made, may be behind.
	f.forget(client.ObjectKeyFromObject(set))
	behind := at.Add(-time.Hour)
	step(at, 10*time.Second, true, crashed("e", behind))
	step(at.Add(15*time.Second), 40*time.Second, true, crashed("f", behind.Add(11*time.Second)))
}
