package vmi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestReady: what the condition Ready says, and why.
func TestReady(t *testing.T) {
	with := func(v view, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) view {
		v.pod.Status.Conditions = append(v.pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason})
		return v
	}
	for name, tt := range map[string]struct {
		v      view
		status corev1.ConditionStatus
		reason string
	}{
		"no pod":       {view{}, corev1.ConditionFalse, kubevirt.PodNotExistsReason},
		"starting":     {seen(readyNode, corev1.PodPending), corev1.ConditionFalse, kubevirt.GuestNotRunningReason},
		"failed":       {seen(readyNode, corev1.PodFailed, crashed), corev1.ConditionFalse, kubevirt.GuestNotRunningReason},
		"powered off":  {seen(readyNode, corev1.PodSucceeded, completed), corev1.ConditionFalse, kubevirt.GuestNotRunningReason},
		"node lost":    {seen(lostNode, corev1.PodRunning, running), corev1.ConditionUnknown, ReasonNodeUnresponsive},
		"deleted":      {deleted(seen(readyNode, corev1.PodRunning, running)), corev1.ConditionFalse, kubevirt.PodTerminatingReason},
		"no condition": {seen(readyNode, corev1.PodRunning, running), corev1.ConditionFalse, kubevirt.PodConditionMissingReason},
		"paused": {with(seen(readyNode, corev1.PodRunning, running), condition.Paused, corev1.ConditionTrue, "PausedByUser"),
			corev1.ConditionFalse, "PausedByUser"},
		"probe fails": {with(seen(readyNode, corev1.PodRunning, running), corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady"),
			corev1.ConditionFalse, "ContainersNotReady"},
		"ready": {with(seen(readyNode, corev1.PodRunning, running), corev1.PodReady, corev1.ConditionTrue, ""),
			corev1.ConditionTrue, ""},
	} {
		if c := ready(tt.v); c.Status != tt.status || c.Reason != tt.reason {
			t.Errorf("%s: %s %s, want %s %s", name, c.Status, c.Reason, tt.status, tt.reason)
		}
	}
}

// TestTransitionTimes: a condition's time changes with its status alone, and
// conditions of others stay.
func TestTransitionTimes(t *testing.T) {
	now := time.Now()
	vmi := new(kubevirt.VirtualMachineInstance)
	vmi.Status.Conditions = []cond{{Type: "Foreign", Status: corev1.ConditionTrue}}
	vmi.Status.Conditions = conditions(vmi, view{}, now)
	vmi.Status.Conditions = conditions(vmi, seen(readyNode, corev1.PodPending, pulling), now.Add(time.Hour))
	if at := find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceReady).LastTransitionTime; !at.Time.Equal(now) {
		t.Errorf("not ready since %s, want %s", at, now)
	}
	if c := find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceSynchronized); c == nil || c.Reason != "ErrImagePull" {
		t.Errorf("trouble: %+v", c)
	}
	vmi.Status.Conditions = conditions(vmi, seen(readyNode, corev1.PodRunning, running), now.Add(2*time.Hour))
	if find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceSynchronized) != nil {
		t.Error("the trouble outlasted the start")
	}
	if find(vmi.Status.Conditions, "Foreign") == nil {
		t.Error("another's condition is gone")
	}
}

// TestEvictionRequested: an instance says that it should leave its node, until it has left.
func TestEvictionRequested(t *testing.T) {
	vmi := new(kubevirt.VirtualMachineInstance)
	vmi.Status.EvacuationNodeName = "node1"
	vmi.Status.Conditions = conditions(vmi, seen(readyNode, corev1.PodRunning, running), time.Now())
	c := find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceEvictionRequested)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != kubevirt.VirtualMachineInstanceReasonEvictionRequested || !strings.Contains(c.Message, "node1") {
		t.Errorf("it should leave: %+v", c)
	}
	vmi.Status.EvacuationNodeName = ""
	vmi.Status.Conditions = conditions(vmi, seen(readyNode, corev1.PodRunning, running), time.Now())
	if c := find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceEvictionRequested); c != nil {
		t.Errorf("it has left: %+v", c)
	}
}

// TestWhy: what an event says of an instance's failure names the cause.
func TestWhy(t *testing.T) {
	drained := deleted(seen(readyNode, corev1.PodFailed, crashed))
	drained.pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "drain",
	}}
	evicted := seen(readyNode, corev1.PodFailed)
	evicted.pod.Status.Reason, evicted.pod.Status.Message = "Evicted", "the node was low on memory"
	for name, tt := range map[string]struct {
		v    view
		want string
	}{
		"pod gone":  {view{gone: true}, "The pod is gone"},
		"node gone": {seen(goneNode, corev1.PodRunning, running), "Node n is gone"},
		"drained":   {drained, "its pod was deleted: EvictionByEvictionAPI: drain"},
		"deleted":   {deleted(seen(readyNode, corev1.PodFailed, crashed)), "powered off (exit code 137): its pod was deleted."},
		"crashed":   {seen(readyNode, corev1.PodFailed, crashed), "crashed: exit code 137, Error"},
		"ended with its node": {seen(readyNode, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "NodeShutdown", ExitCode: 137, Message: "the node restarted"}}), "ended with its node n: the node restarted"},
		"out of service": {seen(taintedOut, corev1.PodRunning, running), "Node n was declared out of service."},
		"evicted":        {evicted, "The pod failed: Evicted: the node was low on memory"},
		"never started":  {seen(readyNode, corev1.PodFailed), "removed before its guest started"},
	} {
		if got := tt.v.why(); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q does not say %q", name, got, tt.want)
		}
	}
	if got := deleted(seen(readyNode, corev1.PodSucceeded, completed)).shutDown(); !strings.Contains(got, "its pod was deleted") {
		t.Errorf("shut down by a drain: %q", got)
	}
}

// TestPanicked: KubeVirt's event says that a guest's kernel panicked.
func TestPanicked(t *testing.T) {
	v := seen(readyNode, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 134, Reason: "GuestPanicked"}})
	before := &kubevirt.VirtualMachineInstanceStatus{Phase: kubevirt.Running}
	var reasons []string
	for _, n := range news(before, &kubevirt.VirtualMachineInstanceStatus{Phase: kubevirt.Failed}, v) {
		reasons = append(reasons, n.reason)
	}
	if got := strings.Join(reasons, " "); got != "Stopped GuestPanicked" {
		t.Errorf("events: %s", got)
	}
}

// TestUnsupportedAgent: a guest's agent refuses commands that guests should allow.
func TestUnsupportedAgent(t *testing.T) {
	for message, want := range map[string]string{
		`{"agentVersion": "8.2"}`:                            "",
		`{"refused": ["guest-shutdown", "guest-get-users"]}`: "the guest agent does not allow guest-shutdown, guest-get-users",
	} {
		v := seen(readyNode, corev1.PodRunning, running)
		v.pod.Status.Conditions = append(v.pod.Status.Conditions, corev1.PodCondition{Type: condition.GuestInfo, Status: corev1.ConditionTrue, Message: message})
		got := ""
		if c := find(conditions(new(kubevirt.VirtualMachineInstance), v, time.Now()), kubevirt.VirtualMachineInstanceUnsupportedAgent); c != nil {
			got = c.Message
		}
		if got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}

// TestAccess: the state of access credentials becomes KubeVirt's conditions and events.
func TestAccess(t *testing.T) {
	vmi := new(kubevirt.VirtualMachineInstance)
	of := func(status corev1.ConditionStatus, reason, message string) view {
		v := seen(readyNode, corev1.PodRunning, running)
		v.pod.Status.Conditions = append(v.pod.Status.Conditions, corev1.PodCondition{
			Type: condition.AccessCredentialsSynchronized, Status: status, Reason: reason, Message: message})
		return v
	}
	for _, tt := range []struct {
		v           view
		synced      corev1.ConditionStatus // "" for no condition
		unsupported bool
		event       string
	}{
		{seen(readyNode, corev1.PodRunning, running), "", false, ""},
		{of(corev1.ConditionFalse, condition.ReasonAgentDisconnected, "no agent"), corev1.ConditionFalse, false, ""},
		{of(corev1.ConditionFalse, condition.ReasonSyncFailed, "no user"), corev1.ConditionFalse, false, "Access credentials sync failed: no user"},
		{of(corev1.ConditionFalse, condition.ReasonSyncFailed, "no user"), corev1.ConditionFalse, false, ""},
		{of(corev1.ConditionFalse, condition.ReasonUnsupportedAgent, "no guest-x"), corev1.ConditionFalse, true, "Access credentials sync failed: no guest-x"},
		{of(corev1.ConditionTrue, condition.ReasonSynchronized, ""), corev1.ConditionTrue, false, "Access credentials sync successful."},
		{seen(readyNode, corev1.PodFailed, crashed), "", false, ""},
	} {
		before := vmi.Status.Conditions
		vmi.Status.Conditions = conditions(vmi, tt.v, time.Now())
		var status corev1.ConditionStatus
		if c := find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceAccessCredentialsSynchronized); c != nil {
			status = c.Status
		}
		c := find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceUnsupportedAgent)
		if unsupported := c != nil && c.Status == corev1.ConditionTrue && c.Message != ""; status != tt.synced || unsupported != tt.unsupported {
			t.Errorf("%+v: synchronized %q, unsupported %t", tt, status, unsupported)
		}
		event := ""
		for _, e := range accessNews(before, vmi.Status.Conditions) {
			event += e.text
		}
		if event != tt.event {
			t.Errorf("event %q, want %q", event, tt.event)
		}
	}
}

// TestDisrupted: an end that others caused says nothing about the next start.
func TestDisrupted(t *testing.T) {
	for reason, want := range map[string]bool{ReasonPodDeleted: true, ReasonNodeGone: true, "Error": false, "": false} {
		vmi := new(kubevirt.VirtualMachineInstance)
		vmi.Status.Reason = reason
		if Disrupted(vmi) != want {
			t.Errorf("%q: %t", reason, !want)
		}
	}
	if !Disrupted(&kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}) {
		t.Error("a deleted instance")
	}
}

// TestInterfaces: cards are in the order of the spec's networks, with what the pod
// and Multus report of each.
func TestInterfaces(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationNetworkStatus: `[
		{"interface": "eth0", "ips": ["10.0.0.1"]},
		{"interface": "net2", "mac": "02:00:00:00:00:02"},
		{"interface": "net1", "mac": "02:00:00:00:00:01", "ips": ["192.0.2.1", "192.0.2.2"]}]`,
		pod.AnnotationStartCards:   "storage,backup",
		pod.AnnotationPluggedCards: `[{"name": "late", "container": "c", "mac": "02:00:00:00:00:03", "ips": ["192.0.2.3"]}]`,
	}}}
	p.Status.PodIP, p.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	vmi := new(kubevirt.VirtualMachineInstance)
	multus := kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "x"}}
	vmi.Spec.Networks = []kubevirt.Network{
		{Name: "storage", NetworkSource: multus},
		{Name: "default", NetworkSource: kubevirt.NetworkSource{Pod: new(kubevirt.PodNetwork)}},
		{Name: "late", NetworkSource: multus},
		{Name: "backup", NetworkSource: multus},
		{Name: "later", NetworkSource: multus}, // the node has not attached it yet
	}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "backup", MacAddress: "02:00:00:00:00:09"}, {Name: "late"}, {Name: "later"}}
	var got []string
	for _, card := range interfaces(vmi, p) {
		got = append(got, strings.Join([]string{card.Name, card.PodInterfaceName, card.MAC, strings.Join(card.IPs, " ")}, " "))
	}
	want := []string{
		"storage net1 02:00:00:00:00:01 192.0.2.1 192.0.2.2",
		"default eth0  10.0.0.1 fd00::1",
		"late " + vmspec.PluginInterface("late") + " 02:00:00:00:00:03 192.0.2.3",
		"backup net2 02:00:00:00:00:09 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// The VM loses a card: the others stay where they are in the pod.
	pod.SetLost(p, "storage")
	vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, kubevirt.Interface{Name: "storage", State: kubevirt.InterfaceStateAbsent})
	got = nil
	for _, card := range interfaces(vmi, p) {
		got = append(got, card.Name+" "+card.PodInterfaceName)
	}
	if diff := cmp.Diff([]string{"default eth0", "late " + vmspec.PluginInterface("late"), "backup net2"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	vmi.Spec.Networks = nil
	vmi.Spec.Domain.Devices.AutoattachPodInterface = new(false)
	if got := interfaces(vmi, p); got != nil {
		t.Errorf("without networks: %v", got)
	}
}

// TestGuestsAddresses: what the agent reports fills what the pod's network does not
// know, and nothing else.
func TestGuestsAddresses(t *testing.T) {
	v := seen(readyNode, corev1.PodRunning, running)
	v.pod.Status.Conditions = []corev1.PodCondition{{Type: condition.GuestInfo, Status: corev1.ConditionTrue, Message: `{"interfaces": [
		{"name": "ens2", "mac": "02:00:00:00:00:02", "ips": ["192.0.2.9", "not an address"]},
		{"name": "ens1", "mac": "02:00:00:00:00:01", "ips": ["198.51.100.1"]}]}`}}
	cards := []kubevirt.VirtualMachineInstanceNetworkInterface{
		{Name: "default", MAC: "02:00:00:00:00:01", IP: "10.0.0.1", IPs: []string{"10.0.0.1"}, InfoSource: "domain"},
		{Name: "storage", MAC: "02:00:00:00:00:02", InfoSource: "multus-status"},
		{Name: "unknown", MAC: "02:00:00:00:00:03"},
	}
	addGuests(cards, v)
	if c := cards[0]; c.InterfaceName != "ens1" || c.IP != "10.0.0.1" || c.InfoSource != "domain, guest-agent" {
		t.Errorf("default: %+v", c)
	}
	if c := cards[1]; c.InterfaceName != "ens2" || c.IP != "192.0.2.9" || len(c.IPs) != 1 {
		t.Errorf("storage: %+v", c)
	}
	if c := cards[2]; c.InterfaceName != "" {
		t.Errorf("unknown: %+v", c)
	}
	cards = []kubevirt.VirtualMachineInstanceNetworkInterface{ // of a masqueraded guest, which has got another card
		{Name: "default", IP: "10.0.0.1", IPs: []string{"10.0.0.1"}, InfoSource: "domain"},
		{Name: "late", MAC: "02:00:00:00:00:02", InfoSource: "domain, multus-status"},
	}
	addGuests(cards, v)
	if c := cards[0]; c.InterfaceName != "ens1" || c.MAC != "02:00:00:00:00:01" || c.InfoSource != "domain, guest-agent" {
		t.Errorf("default: %+v", c)
	}
	if c := cards[1]; c.InterfaceName != "ens2" || c.InfoSource != "domain, guest-agent, multus-status" {
		t.Errorf("late: %+v", c)
	}
}

// TestGuestsCards: the node names the cards that the guest's agent reports. So a card without its own address keeps
// what the agent says of it while another one comes or goes, and that one is none of the guest's own interfaces.
func TestGuestsCards(t *testing.T) {
	v := seen(readyNode, corev1.PodRunning, running)
	v.pod.Status.Conditions = []corev1.PodCondition{{Type: condition.GuestInfo, Status: corev1.ConditionTrue, Message: `{"interfaces": [
		{"card": "lan", "name": "eth1", "mac": "02:00:00:00:00:02", "ips": ["192.0.2.9"]},
		{"card": "default", "name": "eth0", "mac": "02:00:00:00:00:01", "ips": ["10.0.2.2"]},
		{"card": "default", "name": "br0", "mac": "02:00:00:00:00:01"}]}`}}
	own := func() kubevirt.VirtualMachineInstanceNetworkInterface {
		return kubevirt.VirtualMachineInstanceNetworkInterface{Name: "default", IP: "10.0.0.1", IPs: []string{"10.0.0.1"}, InfoSource: "domain"}
	}
	want := own()
	want.InterfaceName, want.MAC, want.InfoSource = "eth0", "02:00:00:00:00:01", "domain, guest-agent"
	got := addGuests([]kubevirt.VirtualMachineInstanceNetworkInterface{own()}, v)
	if diff := cmp.Diff([]kubevirt.VirtualMachineInstanceNetworkInterface{want}, got); diff != "" {
		t.Errorf("after an unplug (-want +got)\n%s", diff)
	}
	got = addGuests([]kubevirt.VirtualMachineInstanceNetworkInterface{own(), {Name: "late"}}, v)
	if diff := cmp.Diff([]kubevirt.VirtualMachineInstanceNetworkInterface{want, {Name: "late"}}, got); diff != "" {
		t.Errorf("with a card that the agent does not know yet (-want +got)\n%s", diff)
	}
}

// TestGuestsOwnInterfaces: what the guest made is listed, unless it may be a card whose address is not known, or has a
// card's address.
func TestGuestsOwnInterfaces(t *testing.T) {
	v := seen(readyNode, corev1.PodRunning, running)
	v.pod.Status.Conditions = []corev1.PodCondition{{Type: condition.GuestInfo, Status: corev1.ConditionTrue, Message: `{"interfaces": [
		{"name": "eth0", "mac": "02:00:00:00:00:11", "ips": ["192.0.2.9"]}, {"name": "eth1", "mac": "02:00:00:00:00:02"},
		{"name": "br0", "mac": "02:00:00:00:00:02"}, {"name": "dummy0", "mac": "02:00:00:00:00:0a"}]}`}}
	cards := func(mac string) []kubevirt.VirtualMachineInstanceNetworkInterface {
		return []kubevirt.VirtualMachineInstanceNetworkInterface{
			{Name: "default", MAC: mac, IP: "10.0.0.1", IPs: []string{"10.0.0.1"}, InfoSource: "domain", QueueCount: 1},
			{Name: "second", MAC: "02:00:00:00:00:02", InfoSource: "domain, multus-status", QueueCount: 1},
		}
	}
	want := append(cards("02:00:00:00:00:01"),
		kubevirt.VirtualMachineInstanceNetworkInterface{
			InterfaceName: "eth0", MAC: "02:00:00:00:00:11", IP: "192.0.2.9", IPs: []string{"192.0.2.9"}, InfoSource: "guest-agent", QueueCount: -1,
		},
		kubevirt.VirtualMachineInstanceNetworkInterface{
			InterfaceName: "dummy0", MAC: "02:00:00:00:00:0a", InfoSource: "guest-agent", QueueCount: -1,
		})
	want[1].InterfaceName, want[1].InfoSource = "eth1", "domain, guest-agent, multus-status"
	if diff := cmp.Diff(want, addGuests(cards("02:00:00:00:00:01"), v)); diff != "" {
		t.Error(diff)
	}
	if got := addGuests(cards(""), v); len(got) != 2 {
		t.Errorf("a card without an address: %+v", got)
	}
}

// TestNodeChanges: the instances of a node are looked at when what is believed of
// its guests changes.
func TestNodeChanges(t *testing.T) {
	of := func(status corev1.ConditionStatus, label string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{"a": label}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	}
	p := newRig(t).r.nodeChanges()
	if !p.Update(event.UpdateEvent{ObjectOld: of(corev1.ConditionTrue, ""), ObjectNew: of(corev1.ConditionUnknown, "")}) {
		t.Error("a lost node changes nothing")
	}
	if p.Update(event.UpdateEvent{ObjectOld: of(corev1.ConditionTrue, "x"), ObjectNew: of(corev1.ConditionTrue, "y")}) {
		t.Error("a label changes something")
	}
	if !p.Create(event.CreateEvent{}) || !p.Delete(event.DeleteEvent{Object: of(corev1.ConditionTrue, "")}) {
		t.Error("a new or deleted node changes nothing")
	}
	g := newRig(t)
	g.started()
	if got := g.r.ofNode(t.Context(), of(corev1.ConditionTrue, "")); len(got) != 1 || got[0].NamespacedName != web {
		t.Errorf("instances of the node: %v", got)
	}
	if got := ofPod(t.Context(), new(corev1.Pod)); got != nil {
		t.Errorf("of a foreign pod: %v", got)
	}
}

// TestOrigin: a pod that lost its owner is still known.
func TestOrigin(t *testing.T) {
	g := newRig(t)
	p := g.started()
	want, _ := originOf(p)
	p.OwnerReferences = nil
	if got, ours := originOf(p); !ours || got != want {
		t.Errorf("%+v, %t; want %+v", got, ours, want)
	}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "x", UID: "y", Controller: new(true)}}
	if _, ours := originOf(p); ours {
		t.Error("a pod of a Job is not ours")
	}
}

// TestRevisionName: the revision of an instance's start stays, though edits of its
// VirtualMachine raise the generation; that of another VirtualMachine does not.
func TestRevisionName(t *testing.T) {
	vmi := new(kubevirt.VirtualMachineInstance)
	owned := func(uid types.UID, generation, want string) {
		t.Helper()
		vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid}}
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
		vmi.Annotations = map[string]string{kubevirt.VirtualMachineGenerationAnnotation: generation}
		vmi.Status.VirtualMachineRevisionName = revisionName(vmi)
		if got := vmi.Status.VirtualMachineRevisionName; got != want {
			t.Errorf("revision %q, want %q", got, want)
		}
	}
	owned("a", "3", "revision-start-vm-a-3")
	owned("a", "4", "revision-start-vm-a-3")
	owned("b", "1", "revision-start-vm-b-1")
	owned("b", "", "")
}

// TestVSOCKCID: the CID is the node's.
func TestVSOCKCID(t *testing.T) {
	for message, want := range map[string]uint32{"64001": 64001, "": 0, "4294967296": 0, "x": 0} {
		v := seen(readyNode, corev1.PodRunning, running)
		v.pod.Status.Conditions = []corev1.PodCondition{{Type: condition.VSOCK, Status: corev1.ConditionTrue, Message: message}}
		vmi := new(kubevirt.VirtualMachineInstance)
		for _, wanted := range []bool{false, true} {
			vmi.Spec.Domain.Devices.AutoattachVSOCK = &wanted
			var s kubevirt.VirtualMachineInstanceStatus
			setMachine(&s, vmi, v)
			if got := s.VSOCKCID; (got != nil) != (wanted && want > 0) || got != nil && *got != want {
				t.Errorf("%q, %t: %v", message, wanted, got)
			}
		}
	}
}

// TestMachineType: the type of the board is the node's, then that of the guest's source, then the spec's.
func TestMachineType(t *testing.T) {
	vmi, s := new(kubevirt.VirtualMachineInstance), kubevirt.VirtualMachineInstanceStatus{}
	for _, tt := range []struct {
		reported string
		want     string
	}{{"", "q35"}, {"pc-q35-7.2", "pc-q35-7.2"}, {"", "pc-q35-7.2"}, {"pc-q35-8.0", "pc-q35-8.0"}} {
		v := seen(readyNode, corev1.PodRunning, running)
		if tt.reported != "" {
			v.pod.Status.Conditions = []corev1.PodCondition{{Type: condition.MachineType, Status: corev1.ConditionTrue, Message: tt.reported}}
		}
		setMachine(&s, vmi, v)
		if s.Machine.Type != tt.want {
			t.Errorf("reported %q: got %q, want %q", tt.reported, s.Machine.Type, tt.want)
		}
	}
}

// TestSuspended: the reason of an instance says that its guest can go on elsewhere.
func TestSuspended(t *testing.T) {
	if got := reason(seen(readyNode, corev1.PodSucceeded, completed)); got != "" {
		t.Errorf("a guest that powered off has the reason %q", got)
	}
	v := seen(readyNode, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: ReasonSuspended}})
	if got := reason(v); got != ReasonSuspended || v.phase() != kubevirt.Succeeded {
		t.Errorf("reason %q, phase %s", got, v.phase())
	}
}
