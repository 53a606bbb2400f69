package hotplug

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestLife: a volume goes through KubeVirt's phases to the VM, and back.
func TestLife(t *testing.T) {
	g := newRig(t)
	g.reconcile()
	assert.Equal(t, len(g.attachments()), 0)

	g.plug("data", "claim")
	g.Fail = func(verb string, o client.Object) error {
		if _, is := o.(*corev1.Pod); is && verb == "create" {
			s := g.status("data")
			if s == nil || s.HotplugVolume.AttachPodName != o.GetName() || g.turns != 1 {
				t.Errorf("the pod is created before it is recorded, or without a turn: %+v", s)
			}
		}
		return nil
	}
	g.reconcile()
	assert.Equal(t, g.turns, 0)
	p := g.attachment()
	g.phase("data", kubevirt.HotplugVolumeAttachedToNode, "SuccessfulCreate")
	s := g.status("data")
	assert.Equal(t, s.Message, "Created hotplug attachment pod "+p.Name+", for volume data")
	assert.DeepEqual(t, *s.HotplugVolume, kubevirt.HotplugVolumeStatus{AttachPodName: p.Name})
	assert.Equal(t, s.PersistentVolumeClaimInfo.ClaimName, "claim")
	assert.Equal(t, len(g.orders), 0)

	g.run(p)
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
	s = g.status("data")
	assert.Equal(t, s.Target, "sda")
	assert.Equal(t, s.HotplugVolume.AttachPodUID, p.UID)
	assert.DeepEqual(t, g.orders, []string{fmt.Sprintf(
		`disk-attach {"disk":{"name":"data","disk":{"bus":"scsi"}},"container":%q,"size":1073741824}`, container)})

	g.unplug("data")
	g.reconcile()
	assert.DeepEqual(t, g.orders[1:], []string{`disk-status {"name":"data"}`, `disk-detach {"name":"data"}`})
	assert.Equal(t, len(g.attachments()), 0)
	if s := g.status("data"); s != nil {
		t.Errorf("its status is still there: %+v", s)
	}
	assert.Equal(t, g.status("root").Target, "vda")
	events := fmt.Sprint(g.Events())
	for _, want := range []string{
		"Normal SuccessfulCreate Created attachment pod " + p.Name, "Normal VolumeMountedToPod", "Normal VolumeReady Successfully attach",
		"Normal DetachingVolume", "Normal VolumeUnMountedFromPod", "Normal VolumeUnplugged Volume data has been unplugged", "Normal SuccessfulDelete Deleted attachment pod " + p.Name,
	} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %q in %s", want, events)
		}
	}
}

// TestImage: a registry disk goes to the VM in the same way, and the status says why its image can't be pulled.
func TestImage(t *testing.T) {
	g := newRig(t)
	g.plugImage("tools", "registry.example.com/tools:1")
	g.reconcile()
	p := g.attachment()
	g.phase("tools", kubevirt.HotplugVolumeAttachedToNode, "SuccessfulCreate")
	assert.Assert(t, g.status("tools").PersistentVolumeClaimInfo == nil)
	fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"},
		}}}
	})
	g.reconcile()
	g.phase("tools", kubevirt.HotplugVolumeAttachedToNode, "ErrImagePull")
	assert.Equal(t, g.status("tools").Message, "no such image")
	assert.Assert(t, strings.Contains(fmt.Sprint(g.Events()), "Warning ErrImagePull no such image"))
	g.run(p)
	g.reconcile()
	g.phase("tools", kubevirt.VolumeReady, "VolumeReady")
	assert.DeepEqual(t, g.orders, []string{fmt.Sprintf(
		`disk-attach {"disk":{"name":"tools","disk":{"bus":"scsi","readonly":true}},"container":%q,"path":"/disk/a"}`, container)})
	g.unplug("tools")
	g.reconcile()
	assert.Equal(t, len(g.attachments()), 0)
	assert.Assert(t, g.status("tools") == nil)
}

// TestWaits: a volume that cannot be used yet waits without an attachment pod.
func TestWaits(t *testing.T) {
	g := newRig(t)
	g.plug("data", "claim")
	g.refusal = &Refusal{Reason: "PVCInUse", Message: "in use by another", Again: time.Second}
	assert.Equal(t, g.reconcile().RequeueAfter, time.Second)
	g.phase("data", kubevirt.VolumePending, "PVCInUse")
	assert.Equal(t, g.status("data").HotplugVolume.AttachPodName, "")
	assert.Equal(t, len(g.attachments()), 0)
	assert.Assert(t, strings.Contains(fmt.Sprint(g.Events()), "Warning PVCInUse in use by another"))

	g.unplug("data") // no node knows of it
	g.reconcile()
	assert.Equal(t, len(g.orders), 0)
	assert.Assert(t, g.status("data") == nil)

	g.refusal, g.r.Holder.Image = nil, ""
	g.plug("data", "claim")
	g.reconcile()
	g.phase("data", kubevirt.VolumePending, "FailedCreate")
	assert.Assert(t, strings.Contains(g.status("data").Message, "-attachment-image"))
}

// TestUnbound: an attachment pod has Kubernetes bind its PVC, and the status says why no node has it.
func TestUnbound(t *testing.T) {
	g := newRig(t)
	fakecluster.Change(t, g.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"}},
		func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })
	g.plug("data", "claim")
	g.reconcile()
	fakecluster.Change(t, g.Cluster, g.attachment(), func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "volume node affinity conflict",
		}}
	})
	g.reconcile()
	g.phase("data", kubevirt.VolumePending, "Unschedulable")
	assert.Equal(t, g.status("data").Message, "volume node affinity conflict")
	g.run(g.attachment())
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
}

// TestFailedOrders: orders are repeated until the node carries them out.
func TestFailedOrders(t *testing.T) {
	g := newRig(t)
	g.plug("data", "claim")
	g.reconcile()
	g.run(g.attachment())
	g.broken = true
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.phase("data", kubevirt.HotplugVolumeMounted, "FailedAttachVolume")
	assert.Equal(t, g.status("data").Message, "disk-attach in pod virt-launcher-web-abcde on node node1: the node is away")
	g.broken = false
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")

	g.broken = true
	g.unplug("data")
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	assert.Equal(t, len(g.attachments()), 1, "the node may have the volume open")
	g.broken, g.stubborn = false, true
	g.orders = nil
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.phase("data", kubevirt.HotplugVolumeDetaching, "DetachingVolume")
	assert.Equal(t, len(g.attachments()), 1)
	assert.Assert(t, strings.HasPrefix(strings.Join(g.orders, "; "), `disk-status {"name":"data"}; disk-detach {"name":"data"}; disk-status`))
	assert.Equal(t, strings.Count(strings.Join(g.orders, "; "), order.Detach), 1, "the node goes on by itself")

	g.plug("data", "claim") // while the guest keeps it
	assert.Equal(t, g.reconcile().RequeueAfter, retry)
	g.phase("data", kubevirt.HotplugVolumeMounted, "FailedAttachVolume")
	delete(g.disks, "data")
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
}

// TestHostileNode: a node's answer is bounded and about the disk.
func TestHostileNode(t *testing.T) {
	g := newRig(t)
	g.plug("data", "claim")
	g.reconcile()
	g.run(g.attachment())
	for _, answer := range []string{
		`{"name": "other", "state": "attached"}`, `{"name": "data", "state": "attached", "target": "../x"}`,
		`{"name": "data", "state": "lost"}`, `{"name": "data", "state": "none"}`, `x`,
	} {
		g.r.Nodes = nodeFunc(answer)
		g.reconcile()
		g.phase("data", kubevirt.HotplugVolumeMounted, "FailedAttachVolume")
		assert.Equal(t, g.status("data").Target, "")
	}
}

// TestLostAttachment: a volume stays with its VM when a stranger deletes the attachment pod,
// and another pod soon holds it.
func TestLostAttachment(t *testing.T) {
	g := attached(t)
	first := g.attachment()
	fakecluster.Change(t, g.Cluster, first, func(p *corev1.Pod) { p.Finalizers = []string{"test/slow"} })
	assert.NilError(t, g.Delete(t.Context(), first))
	g.reconcile()
	second := g.attachment()
	if second.Name == first.Name {
		t.Error("the pod that goes has its name")
	}
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
	g.run(second)
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
	assert.Equal(t, g.status("data").HotplugVolume.AttachPodUID, second.UID)
	assert.Equal(t, len(g.orders), 0)

	fakecluster.Change(t, g.Cluster, second, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }) // evicted
	g.reconcile()
	third := g.attachment()
	assert.Assert(t, third.UID != second.UID)
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
}

// TestLostAnswer: a disk that was attached for a former container is the VM's.
func TestLostAnswer(t *testing.T) {
	g := newRig(t)
	g.plug("data", "claim")
	g.reconcile()
	p := g.attachment()
	g.run(p)
	g.broken = true
	g.reconcile()
	g.phase("data", kubevirt.HotplugVolumeMounted, "FailedAttachVolume")
	g.broken = false
	g.disks["data"] = order.Disk{Name: "data", State: order.Attached, Target: "sdb", Container: "former"}
	fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} })
	g.reconcile()
	assert.Equal(t, g.status("data").HotplugVolume.AttachPodUID, p.UID, "the node may have the volume open")
	g.run(p)
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
	assert.Equal(t, g.status("data").Target, "sdb")
}

// TestReplacedClaim: a volume of the same name on another PVC follows when the former is detached.
func TestReplacedClaim(t *testing.T) {
	g := attached(t)
	g.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}})
	g.unplug("data")
	g.plug("data", "other")
	g.reconcile()
	p := g.attachment()
	assert.Equal(t, p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, "other")
	assert.DeepEqual(t, g.orders, []string{`disk-status {"name":"data"}`, `disk-detach {"name":"data"}`})
	g.run(p)
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
	assert.Equal(t, g.status("data").PersistentVolumeClaimInfo.ClaimName, "other")
}

// TestQuota: a pod that the API server refuses is created again later, and the status says why it is not there.
func TestQuota(t *testing.T) {
	g := newRig(t)
	g.plug("data", "claim")
	g.Fail = refuse("data", "web")
	for range 2 { // a retry changes nothing
		result, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: web})
		assert.NilError(t, err)
		assert.Equal(t, result.RequeueAfter, refusedRetry)
		g.phase("data", kubevirt.VolumeBound, "FailedCreate")
		assert.Assert(t, strings.Contains(g.status("data").Message, "exceeded quota"))
	}
	assert.Assert(t, strings.Contains(fmt.Sprint(g.Events()), "Warning FailedCreate Error creating attachment pod: "))
	g.Writes()
	g.Fail = nil
	g.reconcile()
	g.run(g.attachment())
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
}

// refuse refuses the attachment pods of some volumes and cards.
func refuse(names ...string) func(verb string, o client.Object) error {
	return func(verb string, o client.Object) error {
		p, is := o.(*corev1.Pod)
		if !is || verb != "create" || !slices.Contains(names, pod.Held(p).Name) && !slices.Contains(names, pod.HeldCard(p)) {
			return nil
		}
		return apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), errors.New("exceeded quota"))
	}
}

// TestOthersGoOn: neither a pod that the API server refuses nor a call that fails keeps the VM's other volumes,
// cards and links waiting, whatever their order.
func TestOthersGoOn(t *testing.T) {
	for name, fail := range map[string]func(verb string, o client.Object) error{
		"refused": refuse("bad", "wan"),
		"fails": func(verb string, o client.Object) error {
			if refuse("bad", "wan")(verb, o) != nil {
				return apierrors.NewInternalError(errors.New("a webhook is away"))
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.plug("old", "claim")
			g.reconcile()
			g.run(g.attachment())
			g.reconcile()
			g.phase("old", kubevirt.VolumeReady, "VolumeReady")
			g.Fail = fail
			g.unplug("old")
			g.plug("bad", "claim")
			g.plug("data", "claim")
			g.plugCard("wan")
			g.plugCard("lan", func(i *kubevirt.Interface) { i.State = kubevirt.InterfaceStateLinkDown })
			g.orders = nil
			for range 6 {
				_, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: web})
				assert.Assert(t, (err != nil) == (name == "fails"), err)
				for _, p := range g.attachments() {
					g.run(&p)
				}
			}
			g.phase("data", kubevirt.VolumeReady, "VolumeReady")
			g.wants("lan")
			orders := strings.Join(g.orders, "\n")
			assert.Assert(t, strings.Contains(orders, order.Detach+" ") && strings.Contains(orders, order.Link+" "), orders)
		})
	}
}

// TestStoppedVM: nothing is ordered of a VM that does not run or that moves, and the end of
// the VM is the end of its attachment pods.
func TestStoppedVM(t *testing.T) {
	g := attached(t)
	g.guest.Running = false
	g.unplug("data")
	g.reconcile()
	assert.Equal(t, len(g.orders), 0)
	g.guest.Ended = true
	g.reconcile()
	assert.Equal(t, len(g.orders), 0)
	assert.Equal(t, len(g.attachments()), 0)
	g.guest = Guest{}
	g.reconcile()
	assert.NilError(t, g.Delete(t.Context(), g.vmi()))
	g.reconcile()
}
