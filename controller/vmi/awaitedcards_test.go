package vmi

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestAwaitedCard: an instance says what keeps its running VM from a network card, wherever that is written: in the state of
// the attachment pod, in its events, or in the node's answer.
func TestAwaitedCard(t *testing.T) {
	g := newRig(t)
	g.add(func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)}}}
		vmi.Spec.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
	})
	g.reconcile()
	own := g.onePod()
	g.bind(own, "node1")
	g.state(own, running)
	g.reconcile()
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces,
			kubevirt.Interface{Name: "lan", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Bridge: new(kubevirt.InterfaceBridge)}})
		vmi.Spec.Networks = append(vmi.Spec.Networks,
			kubevirt.Network{Name: "lan", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "lan"}}})
	})
	says := func(want string) {
		t.Helper()
		if got := g.reconcile(); want != "" && (got.RequeueAfter <= 0 || got.RequeueAfter > time.Minute) {
			t.Errorf("again after %s", got.RequeueAfter)
		}
		c := g.condition(kubevirt.VirtualMachineInstanceMigrationRequired)
		if want == "" {
			assert.Assert(t, c == nil, "%+v", c)
			return
		}
		assert.Assert(t, c != nil && c.Status == corev1.ConditionFalse, "%+v", c)
		assert.Equal(t, c.Message, want)
	}
	says("The running VM is about to get network card lan")
	named := func(name string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name}}
		assert.Assert(t, g.Exists(t, p))
		return p
	}
	own = named(own.Name)
	attachment, err := pod.CardAttachment(g.vmi(), own, "lan", pod.Holder{Image: "example.com/holder:1"})
	assert.NilError(t, err)
	attachment.Name = "hp-card-lan"
	attachment.CreationTimestamp = metav1.NewTime(g.now.Add(-time.Minute))
	g.Add(t, attachment)
	says("The running VM is about to get network card lan")

	g.Add(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "why"}, InvolvedObject: corev1.ObjectReference{UID: attachment.UID},
		Type: corev1.EventTypeWarning, Reason: "FailedCreatePodSandBox", Message: `cannot find a network-attachment-definition (lan)`,
	})
	g.wire(func(*Options) {}) // events are listed for a part of the time alone
	says("The running VM does not get network card lan: pod hp-card-lan: FailedCreatePodSandBox: cannot find a network-attachment-definition (lan)")

	change := func(do func(*corev1.Pod)) { fakecluster.Change(t, g.Cluster, named("hp-card-lan"), do) }
	change(func(p *corev1.Pod) {
		p.Annotations[pod.AnnotationProblem] = "card-attach in pod web: ipvlan is no Ethernet interface"
	})
	says("The running VM does not get network card lan: pod hp-card-lan: card-attach in pod web: ipvlan is no Ethernet interface")
	change(func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"},
		}}}
	})
	says("The running VM does not get network card lan: pod hp-card-lan: ErrImagePull: not found")
	change(func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "node is full"}}
	})
	says("The running VM does not get network card lan: pod hp-card-lan: Unschedulable: node is full")

	fakecluster.Change(t, g.Cluster, named(own.Name), func(p *corev1.Pod) {
		assert.NilError(t, pod.SetPluggedCards(p, []pod.PluggedCard{{Name: "lan", Container: "c"}}))
	})
	says("")
}
