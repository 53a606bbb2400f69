package vm

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/backoff"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

const (
	always = kubevirt.RunStrategyAlways
	rerun  = kubevirt.RunStrategyRerunOnFailure
	once   = kubevirt.RunStrategyOnce
	manual = kubevirt.RunStrategyManual
	halted = kubevirt.RunStrategyHalted
)

type request = kubevirt.VirtualMachineStateChangeRequest

var (
	startIt = request{Action: kubevirt.StartRequest}
	stopIt  = request{Action: kubevirt.StopRequest, UID: new(types.UID("u"))}
	stopOld = request{Action: kubevirt.StopRequest, UID: new(types.UID("old"))}
)

func TestDecide(t *testing.T) {
	var (
		start, stop, nothing = decision{start: true}, decision{stop: true}, decision{}
		gone                 kubevirt.VirtualMachineInstancePhase // there is no instance
		running              = kubevirt.Running
		ok, failed           = kubevirt.Succeeded, kubevirt.Failed
	)
	for _, tt := range []struct {
		strategy kubevirt.VirtualMachineRunStrategy
		followed bool // the strategy already
		phase    kubevirt.VirtualMachineInstancePhase
		requests []request
		want     decision
	}{
		{always, false, gone, nil, start},
		{always, true, gone, nil, start},
		{always, true, running, nil, nothing},
		{always, true, ok, nil, stop},
		{always, true, failed, nil, stop},
		{always, true, running, []request{stopIt, startIt}, stop},
		{always, true, running, []request{stopOld}, nothing},
		{rerun, false, gone, nil, start},
		{rerun, true, gone, nil, nothing},
		{rerun, true, gone, []request{startIt}, start},
		{rerun, true, running, nil, nothing},
		{rerun, true, ok, nil, stop},
		{rerun, true, ok, []request{startIt}, stop},
		{rerun, true, failed, nil, decision{stop: true, again: true}},
		{once, false, gone, nil, start},
		{once, true, gone, nil, nothing},
		{once, true, ok, nil, nothing},
		{once, true, failed, nil, nothing},
		{once, true, running, []request{stopIt}, stop},
		{manual, false, gone, nil, nothing},
		{manual, true, gone, []request{startIt}, start},
		{manual, true, running, nil, nothing},
		{manual, true, running, []request{stopIt}, stop},
		{manual, true, ok, nil, nothing},
		{manual, true, failed, []request{startIt}, stop},
		{halted, true, gone, nil, nothing},
		{halted, true, gone, []request{startIt}, nothing},
		{halted, false, running, nil, stop},
		{halted, true, ok, nil, stop},
	} {
		vm := new(kubevirt.VirtualMachine)
		vm.Status.StateChangeRequests = tt.requests
		if tt.followed {
			vm.Status.RunStrategy = tt.strategy
		}
		if got := decide(vm, tt.strategy, inPhase(tt.phase), time.Now()); got != tt.want {
			t.Errorf("%s, followed %t, instance %q, requests %v: %+v, want %+v",
				tt.strategy, tt.followed, tt.phase, tt.requests, got, tt.want)
		}
	}
}

// TestKeepsTheEndedInstance: what ended soon stays until the next start, for its log. A request of a user ends the wait.
func TestKeepsTheEndedInstance(t *testing.T) {
	now := time.Now()
	later := metav1.NewTime(now.Add(time.Minute))
	for _, tt := range []struct {
		strategy kubevirt.VirtualMachineRunStrategy
		phase    kubevirt.VirtualMachineInstancePhase
		requests []request
		want     decision
	}{
		{always, kubevirt.Failed, nil, decision{wait: time.Minute}},
		{always, kubevirt.Succeeded, nil, decision{wait: time.Minute}},
		{rerun, kubevirt.Failed, nil, decision{wait: time.Minute}},
		{rerun, kubevirt.Succeeded, nil, decision{stop: true}},
		{always, kubevirt.Failed, []request{stopIt}, decision{stop: true}},
		{always, kubevirt.Failed, []request{startIt}, decision{stop: true}},
		{rerun, kubevirt.Failed, []request{startIt}, decision{stop: true, again: true}},
		{halted, kubevirt.Failed, nil, decision{stop: true}},
		{manual, kubevirt.Failed, nil, decision{}},
	} {
		vm := new(kubevirt.VirtualMachine)
		vm.Status.RunStrategy, vm.Status.StateChangeRequests = tt.strategy, tt.requests
		vm.Status.StartFailure = &kubevirt.VirtualMachineStartFailure{RetryAfterTimestamp: &later}
		if got := decide(vm, tt.strategy, inPhase(tt.phase), now); got != tt.want {
			t.Errorf("%s, instance %s, requests %v: %+v, want %+v", tt.strategy, tt.phase, tt.requests, got, tt.want)
		}
		if got := decide(vm, tt.strategy, inPhase(tt.phase), later.Time); got.wait != 0 {
			t.Errorf("%s, instance %s: waits longer than it should", tt.strategy, tt.phase)
		}
	}
}

// inPhase is an instance, nil for no phase.
func inPhase(phase kubevirt.VirtualMachineInstancePhase) *kubevirt.VirtualMachineInstance {
	if phase == "" {
		return nil
	}
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	vmi.Status.Phase = phase
	return vmi
}

// TestStopsFirst: while an instance ends, nothing is decided.
func TestStopsFirst(t *testing.T) {
	vmi := inPhase(kubevirt.Failed)
	vmi.DeletionTimestamp = new(metav1.Now())
	for _, strategy := range []kubevirt.VirtualMachineRunStrategy{always, rerun, once, manual, halted} {
		if got := decide(new(kubevirt.VirtualMachine), strategy, vmi, time.Now()); got != (decision{}) {
			t.Errorf("%s: %+v", strategy, got)
		}
	}
}

func TestPending(t *testing.T) {
	vm := new(kubevirt.VirtualMachine)
	vm.Status.StateChangeRequests = []request{stopIt, startIt}
	for _, tt := range []struct {
		strategy kubevirt.VirtualMachineRunStrategy
		vmi      *kubevirt.VirtualMachineInstance
		want     int
	}{
		{manual, inPhase(kubevirt.Running), 2}, // the stop is meant for it, the start for the next
		{manual, nil, 1},
		{halted, inPhase(kubevirt.Running), 1},
		{halted, nil, 0},
	} {
		if got := pending(vm, tt.strategy, tt.vmi); len(got) != tt.want {
			t.Errorf("%s, %v: %v, want %d", tt.strategy, tt.vmi, got, tt.want)
		}
	}
	next := inPhase(kubevirt.Scheduling)
	next.UID = "next"
	if got := pending(vm, manual, next); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestStartFailure(t *testing.T) {
	now := time.Now()
	ended := func(uid types.UID, ran time.Duration) *kubevirt.VirtualMachineInstance {
		vmi := inPhase(kubevirt.Failed)
		vmi.UID = uid
		if ran > 0 {
			vmi.Status.PhaseTransitionTimestamps = []kubevirt.VirtualMachineInstancePhaseTransitionTimestamp{
				{Phase: kubevirt.Running, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-ran))},
				{Phase: kubevirt.Failed, PhaseTransitionTimestamp: metav1.NewTime(now)},
			}
		}
		return vmi
	}
	first := startFailure(nil, ended("1", 0), now)
	if first.ConsecutiveFailCount != 1 || first.RetryAfterTimestamp.Sub(now) != backoff.Unit {
		t.Errorf("first: %+v", first)
	}
	if again := startFailure(first, ended("1", 0), now.Add(time.Hour)); again != first {
		t.Errorf("counted twice: %+v", again)
	}
	if kept := startFailure(first, nil, now); kept != first {
		t.Errorf("without an instance: %+v", kept)
	}
	for name, disrupt := range map[string]func(*kubevirt.VirtualMachineInstance){
		"deleted": func(vmi *kubevirt.VirtualMachineInstance) { vmi.DeletionTimestamp = new(metav1.Now()) },
		"drained": func(vmi *kubevirt.VirtualMachineInstance) { vmi.Status.Reason = instances.ReasonPodDeleted },
		"bereft":  func(vmi *kubevirt.VirtualMachineInstance) { vmi.Status.Reason = instances.ReasonNodeGone },
	} {
		vmi := ended("2", 5*time.Second)
		disrupt(vmi)
		if got := startFailure(first, vmi, now); got != first {
			t.Errorf("%s: %+v", name, got)
		}
	}
	second := startFailure(first, ended("2", 5*time.Second), now)
	if second.ConsecutiveFailCount != 2 || second.RetryAfterTimestamp.Sub(now) != 4*backoff.Unit {
		t.Errorf("second: %+v", second)
	}
	for range 1000 {
		second.LastFailedVMIUID = ""
		second = startFailure(second, ended("3", 0), now)
	}
	if second.RetryAfterTimestamp.Sub(now) != backoff.Longest {
		t.Errorf("after many: %+v", second)
	}
	if got := startFailure(second, ended("4", backoff.Steady), now); got != nil {
		t.Errorf("after a run: %+v", got)
	}
}

// TestFailureUnder: a VM that a user starts does not wait, and halting it resets the
// count.
func TestFailureUnder(t *testing.T) {
	have, now := &kubevirt.VirtualMachineStartFailure{ConsecutiveFailCount: 3}, time.Now()
	for _, tt := range []struct {
		strategy kubevirt.VirtualMachineRunStrategy
		vmi      *kubevirt.VirtualMachineInstance
		want     int
	}{
		{always, nil, 3},
		{always, inPhase(kubevirt.Failed), 4},
		{rerun, inPhase(kubevirt.Failed), 4},
		{manual, inPhase(kubevirt.Failed), 0},
		{manual, nil, 0},
		{halted, inPhase(kubevirt.Running), 3},
		{halted, nil, 0},
	} {
		got := 0
		if f := failureUnder(tt.strategy, have, tt.vmi, now); f != nil {
			got = f.ConsecutiveFailCount
		}
		if got != tt.want {
			t.Errorf("%s, %v: %d failures, want %d", tt.strategy, tt.vmi, got, tt.want)
		}
	}
}

// TestHoldBack: a start waits until its time, but not for a clock that was
// wrong.
func TestHoldBack(t *testing.T) {
	now := time.Now()
	for given, want := range map[time.Duration]time.Duration{
		-time.Second: 0, time.Second: time.Second, backoff.Longest: backoff.Longest, time.Hour: 0,
	} {
		vm := new(kubevirt.VirtualMachine)
		vm.Status.StartFailure = &kubevirt.VirtualMachineStartFailure{RetryAfterTimestamp: new(metav1.NewTime(now.Add(given)))}
		if got := holdBack(vm, now); got != want {
			t.Errorf("retry after %s: %s, want %s", given, got, want)
		}
	}
}

func TestTemplate(t *testing.T) {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "c", Generation: 3}}
	vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web"}
	first, err := instance(vm, vm.Spec.Template.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	if first.Labels["app"] != "web" || first.Labels[kubevirt.VirtualMachineLabel] != "a" || !metav1.IsControlledBy(first, vm) {
		t.Errorf("%+v", first.ObjectMeta)
	}
	second, err := instance(vm, vm.Spec.Template.DeepCopy())
	if err != nil || first.Spec.Domain.Firmware.UUID == "" || first.Spec.Domain.Firmware.UUID != second.Spec.Domain.Firmware.UUID {
		t.Errorf("system UUIDs %q and %q, %v", first.Spec.Domain.Firmware.UUID, second.Spec.Domain.Firmware.UUID, err)
	}
	if outdated(vm, nil, first) {
		t.Error("outdated at once")
	}
	vm.Spec.Template.ObjectMeta.Labels["app"] = "other"
	if outdated(vm, nil, first) {
		t.Error("outdated by a label")
	}
	vm.Spec.Template.Spec.Hostname = "other"
	if !outdated(vm, nil, first) {
		t.Error("not outdated by another host name")
	}
	vm.Spec.Template.Spec.Hostname = ""
	vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "large"}
	if !outdated(vm, nil, first) {
		t.Error("not outdated by an instance type")
	}
}
