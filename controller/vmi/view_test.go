package vmi

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

var (
	running    = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	creating   = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	pulling    = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}
	completed  = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	crashed    = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137}}
	readyNode  = node{}
	lostNode   = node{lost: true}
	goneNode   = node{gone: true}
	taintedOut = node{lost: true, outOfService: true}
)

// seen makes a view of a pod that is bound to a node, with its container in a state.
func seen(on node, phase corev1.PodPhase, states ...corev1.ContainerState) view {
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: phase}}
	for _, s := range states {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: "sidecar", State: running}, corev1.ContainerStatus{Name: pod.Container, State: s})
	}
	return view{pod: p, node: on}
}

// deleted makes the pod of a view one that is being deleted, by force.
func deleted(v view) view {
	v.pod.DeletionTimestamp, v.pod.DeletionGracePeriodSeconds = new(metav1.Now()), new(int64(0))
	return v
}

func unbound(v view) view {
	v.pod.Spec.NodeName = ""
	return v
}

// saysOff makes the pod of a view one whose node has reported that the guest powered off.
func saysOff(v view) view {
	v.pod.Status.Conditions = append(v.pod.Status.Conditions, corev1.PodCondition{
		Type: condition.VMReady, Status: corev1.ConditionFalse, Reason: condition.ReasonCompleted,
	})
	return v
}

// TestPhase: what an instance's phase is, and whether its pod's finalizer may go.
// The lines that must not end are what keeps a second guest from being started.
func TestPhase(t *testing.T) {
	for name, tt := range map[string]struct {
		view
		phase  kubevirt.VirtualMachineInstancePhase
		ended  bool
		reason string
	}{
		"no pod":              {view{}, kubevirt.Pending, false, ""},
		"pod gone":            {view{gone: true}, kubevirt.Failed, true, "PodLost"},
		"no node":             {unbound(seen(readyNode, corev1.PodPending)), kubevirt.Scheduling, false, ""},
		"no node, deleted":    {deleted(unbound(seen(readyNode, corev1.PodPending))), kubevirt.Failed, true, ""},
		"bound":               {seen(readyNode, corev1.PodPending), kubevirt.Scheduled, false, ""},
		"bound, deleted":      {deleted(seen(readyNode, corev1.PodPending)), kubevirt.Scheduled, false, ""},
		"creating":            {seen(readyNode, corev1.PodPending, creating), kubevirt.Scheduled, false, ""},
		"creating, deleted":   {deleted(seen(readyNode, corev1.PodPending, creating)), kubevirt.Scheduled, false, ""},
		"pull failed":         {seen(readyNode, corev1.PodPending, pulling), kubevirt.Scheduled, false, ""},
		"running":             {seen(readyNode, corev1.PodRunning, running), kubevirt.Running, false, ""},
		"running, deleted":    {deleted(seen(readyNode, corev1.PodRunning, running)), kubevirt.Running, false, ""},
		"the node says off":   {saysOff(seen(readyNode, corev1.PodRunning, running)), kubevirt.Succeeded, false, ""},
		"drained, said off":   {deleted(saysOff(seen(readyNode, corev1.PodRunning, running))), kubevirt.Succeeded, false, "PodDeleted"},
		"said off, then lost": {saysOff(seen(lostNode, corev1.PodRunning, running)), kubevirt.Unknown, false, "NodeUnresponsive"},
		"running, failed":     {seen(readyNode, corev1.PodFailed, running), kubevirt.Running, false, ""},
		"running, node lost":  {seen(lostNode, corev1.PodRunning, running), kubevirt.Unknown, false, "NodeUnresponsive"},
		"lost and deleted":    {deleted(seen(lostNode, corev1.PodRunning, running)), kubevirt.Unknown, false, "NodeUnresponsive"},
		"creating, node lost": {seen(lostNode, corev1.PodPending, creating), kubevirt.Unknown, false, "NodeUnresponsive"},
		"node gone":           {seen(goneNode, corev1.PodRunning, running), kubevirt.Failed, true, "NodeGone"},
		"out of service":      {seen(taintedOut, corev1.PodRunning, running), kubevirt.Failed, true, "NodeOutOfService"},
		"shut down":           {seen(readyNode, corev1.PodSucceeded, completed), kubevirt.Succeeded, true, ""},
		"drained":             {deleted(seen(readyNode, corev1.PodSucceeded, completed)), kubevirt.Succeeded, true, "PodDeleted"},
		"drained, stubborn":   {deleted(seen(readyNode, corev1.PodFailed, crashed)), kubevirt.Failed, true, "PodDeleted"},
		"sidecar runs on":     {seen(readyNode, corev1.PodRunning, completed), kubevirt.Succeeded, true, ""},
		"crashed":             {seen(readyNode, corev1.PodFailed, crashed), kubevirt.Failed, true, "Error"},
		"crashed, node lost":  {seen(lostNode, corev1.PodFailed, crashed), kubevirt.Failed, true, "Error"},
		"refused by kubelet":  {seen(readyNode, corev1.PodFailed), kubevirt.Failed, true, ""},
		"ended while waiting": {seen(readyNode, corev1.PodFailed, pulling), kubevirt.Failed, true, ""},
	} {
		if got := tt.view.phase(); got != tt.phase || tt.view.ended() != tt.ended || reason(tt.view) != tt.reason {
			t.Errorf("%s: %s, ended %t, reason %q; want %s, %t, %q",
				name, got, tt.view.ended(), reason(tt.view), tt.phase, tt.ended, tt.reason)
		}
	}
}

func TestReadNode(t *testing.T) {
	out := corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}
	for _, tt := range []struct {
		ready corev1.ConditionStatus
		taint []corev1.Taint
		want  node
	}{
		{corev1.ConditionTrue, nil, node{}},
		{corev1.ConditionFalse, nil, node{}},
		{corev1.ConditionUnknown, nil, node{lost: true}},
		{corev1.ConditionUnknown, []corev1.Taint{out}, node{lost: true, outOfService: true}},
		{corev1.ConditionFalse, []corev1.Taint{out}, node{outOfService: true}},
		// Its kubelet reports: what it reports counts.
		{corev1.ConditionTrue, []corev1.Taint{out}, node{}},
	} {
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: tt.taint}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tt.ready}}}}
		if got := readNode(n); got != tt.want {
			t.Errorf("%s %v: %+v, want %+v", tt.ready, tt.taint, got, tt.want)
		}
	}
}

func TestUnheard(t *testing.T) {
	now := time.Now()
	for age, want := range map[time.Duration]time.Duration{
		0: schedulerTime, 4 * time.Second: time.Second, time.Hour: 0,
		-24 * time.Hour: 0, // the clock was set back
	} {
		v := seen(readyNode, corev1.PodPending)
		v.pod.Spec.NodeName, v.pod.CreationTimestamp = "", metav1.NewTime(now.Add(-age))
		if got := v.unheard(now); got != want {
			t.Errorf("of age %s: %s, want %s", age, got, want)
		}
	}
}

func TestLookAgain(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name   string
		v      view
		silent time.Duration
		due    bool
		next   time.Duration
	}{
		{"just bound", seen(readyNode, corev1.PodPending, creating), time.Second, false, 2 * time.Second},
		{"silent", seen(readyNode, corev1.PodPending, creating), 10 * time.Second, true, 5 * time.Second},
		{"long silent", seen(readyNode, corev1.PodPending), time.Hour, true, time.Minute},
		{"clock set back", seen(readyNode, corev1.PodPending), -24 * time.Hour, true, time.Minute},
		{"tells itself", seen(readyNode, corev1.PodPending, pulling), time.Hour, false, 0},
		{"runs", seen(readyNode, corev1.PodRunning, running), time.Hour, false, 0},
	} {
		tt.v.pod.CreationTimestamp = metav1.NewTime(now.Add(-tt.silent))
		if due, next := tt.v.lookAgain(now); due != tt.due || next != tt.next {
			t.Errorf("%s: %t, %s; want %t, %s", tt.name, due, next, tt.due, tt.next)
		}
	}
	v := seen(readyNode, corev1.PodPending, creating)
	v.pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	v.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}
	if due, next := v.lookAgain(now); due || next != 0 {
		t.Errorf("with a sandbox: %t, %s", due, next)
	}
}

// TestStatus: a second look at the same writes nothing, and an end stays one.
func TestStatus(t *testing.T) {
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()}}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default"}}
	v := seen(readyNode, corev1.PodRunning, running)
	v.pod.Status.PodIP, v.pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
	v.pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: condition.AgentConnected, Status: corev1.ConditionTrue, Reason: condition.ReasonAgentConnected},
		{Type: condition.GuestInfo, Status: corev1.ConditionTrue, Message: `{"os": {"prettyName": "Debian"},
			"interfaces": [{"name": "ens1", "mac": "02:00:00:00:00:01", "ips": ["10.0.0.1"]}]}`},
	}
	vmi.Status = status(vmi, v, time.Now())
	s := vmi.Status
	if s.GuestOSInfo.PrettyName != "Debian" || s.Interfaces[0].InterfaceName != "ens1" ||
		s.Interfaces[0].MAC != "02:00:00:00:00:01" || find(s.Conditions, kubevirt.VirtualMachineInstanceAgentConnected) == nil {
		t.Errorf("of the guest: %+v", s)
	}
	if again := status(vmi, v, time.Now().Add(time.Hour)); !equalStatus(again, s) {
		t.Errorf("a second look makes\n%+v\nof\n%+v", again, s)
	}
	v = seen(readyNode, corev1.PodSucceeded, completed)
	vmi.Status = status(vmi, v, time.Now())
	if vmi.Status.Phase != kubevirt.Succeeded {
		t.Errorf("phase %s", vmi.Status.Phase)
	}
	if after := status(vmi, view{gone: true}, time.Now()); !equalStatus(after, vmi.Status) {
		t.Errorf("after its end: %+v", after)
	}
}

func TestTrouble(t *testing.T) {
	hooked := seen(readyNode, corev1.PodPending, creating)
	hooked.pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "hook-sidecar-0", State: running}, {Name: "hook-sidecar-1", State: pulling}}
	refused := seen(readyNode, corev1.PodPending, creating)
	refused.pod.Status.Conditions = []corev1.PodCondition{{
		Type: condition.VMReady, Status: corev1.ConditionFalse, Reason: condition.ReasonCreateFailed, Message: "too little memory",
	}}
	for _, tt := range []struct {
		v    view
		want trouble
	}{
		{seen(readyNode, corev1.PodPending, pulling), trouble{reason: "ErrImagePull", message: "no such image"}},
		{refused, trouble{reason: "CreateFailed", message: "too little memory"}},
		{view{trouble: &trouble{reason: "FailedMount", message: "no such Secret"}}, trouble{reason: "FailedMount", message: "no such Secret"}},
		{hooked, trouble{reason: "ErrImagePull", message: "no such image"}},
		{view{trouble: &trouble{reason: "CreateFailed", message: `container "compute": nodevirt.io/vmi: spec.domain.cpu.model: unknown`}},
			trouble{reason: "CreateFailed", message: `container "compute": spec.domain.cpu.model: unknown`}},
		{view{trouble: &trouble{reason: "StartFailed", message: "no such CPU: change annotation nodevirt.io/vmi, or have the pod run on another node"}},
			trouble{reason: "StartFailed", message: "no such CPU: change the VM's spec, or have the pod run on another node"}},
	} {
		if got := tt.v.find(); got == nil || *got != tt.want {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
	}
	if got := seen(readyNode, corev1.PodPending, creating).find(); got != nil {
		t.Errorf("trouble out of nothing: %+v", got)
	}
}

func equalStatus(a, b kubevirt.VirtualMachineInstanceStatus) bool {
	return equality.Semantic.DeepEqual(a, b)
}
