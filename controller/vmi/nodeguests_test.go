package vmi

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestGuestWithoutPod: an instance on a disk that two nodes can open gets no pod while a node that is Ready has a guest on it
// whose pod the API server does not have, as after a restore of etcd, or while that is not known.
func TestGuestWithoutPod(t *testing.T) {
	const lost = `{"guests": [{"namespace": "default", "pod": "virt-launcher-db-1", "uid": "u-1", "vmi": "db", "pvcs": ["data"]}]}`
	for name, tt := range map[string]struct {
		answer  string
		refusal error
		ready   corev1.ConditionStatus
		mode    corev1.PersistentVolumeAccessMode
		reason  string
		words   string
	}{
		"a lost guest":             {lost, nil, corev1.ConditionTrue, corev1.ReadWriteMany, ReasonGuestWithoutPod, "virt-launcher-db-1"},
		"no guest":                 {`{"guests": []}`, nil, corev1.ConditionTrue, corev1.ReadWriteMany, "", ""},
		"one on another disk":      {`{"guests": [{"namespace": "default", "pod": "p", "uid": "u-1", "vmi": "db", "pvcs": ["other"]}]}`, nil, corev1.ConditionTrue, corev1.ReadWriteMany, "", ""},
		"one of another namespace": {`{"guests": [{"namespace": "x", "pod": "p", "uid": "u-1", "pvcs": ["data"]}]}`, nil, corev1.ConditionTrue, corev1.ReadWriteMany, "", ""},
		"the instance's own":       {`{"guests": [{"namespace": "default", "pod": "p", "uid": "u-1", "vmi": "second"}]}`, nil, corev1.ConditionTrue, corev1.ReadWriteMany, ReasonGuestWithoutPod, "pod p"},
		"no answer":                {"", errors.New("the node hangs"), corev1.ConditionTrue, corev1.ReadWriteMany, ReasonNodeNotAsked, "the node hangs"},
		"nonsense":                 {"<", nil, corev1.ConditionTrue, corev1.ReadWriteMany, ReasonNodeNotAsked, "node1"},
		"a node that is lost":      {lost, nil, corev1.ConditionUnknown, corev1.ReadWriteMany, "", ""},
		"a disk of one node":       {lost, nil, corev1.ConditionTrue, corev1.ReadWriteOnce, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.started() // by which the node is reached
			fakecluster.Change(t, g.Cluster, g.node("node1"), func(n *corev1.Node) { n.Labels = map[string]string{kubevirt.NodeSchedulable: "true"} })
			g.ready("node1", tt.ready)
			g.addPVC(tt.mode)
			g.answers, g.refusal = map[string]string{condition.OrderGuests: tt.answer}, tt.refusal
			g.add(onPVC(), call("second"))
			if tt.reason != "" {
				g.waits("second", tt.reason, tt.words)
				if n := len(g.pods()); n != 1 {
					t.Fatalf("%d pods", n)
				}
				g.now = g.now.Add(patient + time.Second)
				if tt.reason == ReasonGuestWithoutPod {
					g.answers[condition.OrderGuests] = `{"guests": []}`
				}
			}
			g.reconcileOf("second")
			if n := len(g.pods()); n != 2 {
				t.Errorf("%d pods, want that of the instance, too", n)
			}
		})
	}
}

// TestKnownGuest: a guest whose pod the API server has shares the disk, as its access mode allows.
func TestKnownGuest(t *testing.T) {
	g := newRig(t)
	p := g.started()
	fakecluster.Change(t, g.Cluster, g.node("node1"), func(n *corev1.Node) { n.Labels = map[string]string{kubevirt.NodeSchedulable: "true"} })
	g.addPVC(corev1.ReadWriteMany)
	g.answers = map[string]string{condition.OrderGuests: `{"guests": [{"namespace": "default", "pod": "` + p.Name + `", "uid": "` + string(p.UID) + `", "pvcs": ["data"]}]}`}
	g.add(onPVC(), call("second"))
	g.reconcileOf("second")
	if n := len(g.pods()); n != 2 {
		t.Errorf("%d pods", n)
	}
}

// TestReportedByTheNode: the guests of a node without a VM by which it could be reached are known by its annotation. The
// words of the condition are for people.
func TestReportedByTheNode(t *testing.T) {
	const message = "1 guests run whose pods the API server does not have: default/p (PVC data)"
	for name, tt := range map[string]struct {
		status corev1.ConditionStatus
		reason string
		guests string
		words  string // "" for an instance that starts
	}{
		"the disk":           {corev1.ConditionTrue, condition.ReasonPodsUnknown, `{"guests":[{"namespace":"default","pod":"p","pvcs":["data"]}]}`, "pod p,"},
		"another disk":       {corev1.ConditionTrue, condition.ReasonPodsUnknown, `{"guests":[{"namespace":"default","pod":"p","pvcs":["other"]}]}`, ""},
		"another namespace":  {corev1.ConditionTrue, condition.ReasonPodsUnknown, `{"guests":[{"namespace":"x","pod":"p","pvcs":["data"]}]}`, ""},
		"the instance's own": {corev1.ConditionTrue, condition.ReasonPodsUnknown, `{"guests":[{"namespace":"default","pod":"p","vmi":"web"}]}`, "pod p,"},
		"too many":           {corev1.ConditionTrue, condition.ReasonPodsUnknown, `{"guests":[{"namespace":"x","pod":"p"}],"more":10}`, "one of 10"},
		"no list":            {corev1.ConditionTrue, condition.ReasonPodsUnknown, "", "cannot be read"},
		"a restored etcd":    {corev1.ConditionTrue, condition.ReasonStateWentBack, "", ""},
		"an old list":        {corev1.ConditionFalse, condition.ReasonPodsKnown, `{"guests":[{"namespace":"default","pod":"p","pvcs":["data"]}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			node := g.node("node1")
			node.Annotations = map[string]string{condition.AnnotationGuests: tt.guests}
			node.Status.Conditions = []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: condition.GuestsWithoutPods, Status: tt.status, Reason: tt.reason, Message: message},
			}
			g.Add(t, node)
			g.addPVC(corev1.ReadWriteMany)
			g.add(onPVC())
			if tt.words != "" {
				g.waits(web.Name, ReasonGuestWithoutPod, tt.words)
			} else if g.reconcile(); len(g.pods()) != 1 {
				t.Errorf("%d pods", len(g.pods()))
			}
		})
	}
}

// TestGuestOfTheSameName: an instance without a shared disk waits, too, while a node reports a guest of its name without a
// pod: after a restore of etcd the guest of a former migration may run there. Other guests do not matter to it.
func TestGuestOfTheSameName(t *testing.T) {
	for guests, waits := range map[string]bool{
		`{"guests":[{"namespace":"default","pod":"p","vmi":"web"}]}`:          true,
		`{"guests":[{"namespace":"default","pod":"p","vmi":"db"}],"more":10}`: false,
		`{"guests":[{"namespace":"other","pod":"p","vmi":"web"}]}`:            false,
		"": false,
	} {
		g := newRig(t)
		node := g.node("node1")
		node.Annotations = map[string]string{condition.AnnotationGuests: guests}
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: condition.GuestsWithoutPods, Status: corev1.ConditionTrue, Reason: condition.ReasonPodsUnknown},
		}
		g.Add(t, node)
		g.add()
		if !waits {
			if g.reconcile(); len(g.pods()) != 1 {
				t.Errorf("%s: %d pods", guests, len(g.pods()))
			}
			continue
		}
		g.waits(web.Name, ReasonGuestWithoutPod, "is this VM's")
		fakecluster.Change(t, g.Cluster, g.node("node1"), func(n *corev1.Node) {
			n.Annotations, n.Status.Conditions = nil, n.Status.Conditions[:1]
		})
		if g.reconcile(); len(g.pods()) != 1 {
			t.Errorf("%d pods after the guest's end", len(g.pods()))
		}
	}
}

// TestPodOfAnotherAuthor: a pod that only looks like a VM's does not answer for its node.
func TestPodOfAnotherAuthor(t *testing.T) {
	g := newRig(t)
	p := g.started()
	fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) { p.Finalizers = nil })
	fakecluster.Change(t, g.Cluster, g.node("node1"), func(n *corev1.Node) { n.Labels = map[string]string{kubevirt.NodeSchedulable: "true"} })
	g.ready("node1", corev1.ConditionTrue)
	g.addPVC(corev1.ReadWriteMany)
	g.answers = map[string]string{condition.OrderGuests: `{"guests": [{"namespace": "default", "pod": "x", "uid": "u", "vmi": "second"}]}`}
	g.add(onPVC(), call("second"))
	g.reconcileOf("second")
	if n := len(g.pods()); n != 2 {
		t.Errorf("%d pods: the pod of another author was asked", n)
	}
}
