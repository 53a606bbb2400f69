package hotplug

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

var (
	web       = types.NamespacedName{Namespace: "default", Name: "web"}
	container = strings.Repeat("c", 64)
)

// rig is a reconciler with a cluster in memory. The test is the user, the scheduler and the
// kubelet, and has a node and the controller of instances.
type rig struct {
	*fakecluster.Cluster
	t   *testing.T
	r   *Reconciler
	own *corev1.Pod

	// guest is what the instance's controller says, refusal why the instance can't use its PVC.
	guest   Guest
	refusal *Refusal
	turns   int

	// disks are those of the VM, orders what it was ordered. Broken fails orders; a stubborn
	// guest releases no disk.
	disks            map[string]order.Disk
	orders           []string
	plugged          map[string]order.Card
	broken, stubborn bool
	// dump is the last one of the guest's memory.
	dump order.Dump
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, disks: map[string]order.Disk{}, plugged: map[string]order.Card{}}
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types:  []func(*runtime.Scheme) error{corev1.AddToScheme, kubevirt.AddToScheme},
		Status: []client.Object{new(kubevirt.VirtualMachineInstance)},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			for name, key := range Indexes() {
				b = b.WithIndex(new(corev1.Pod), name, key)
			}
			return b
		},
	})
	g.r = &Reconciler{
		Client: g.Cached(), Guests: g, Nodes: g, Events: g.Recorder,
		Holder: pod.Holder{Image: "registry.example.com/holder:1", Args: []string{"-hold-volumes"}},
		Now:    func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) },
	}
	g.own = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "virt-launcher-web-abcde"},
		Spec:       corev1.PodSpec{NodeName: "node1"},
	}
	g.Add(t, g.own)
	g.guest = Guest{Pod: g.own, Running: true}
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "root", Target: "vda"}}
	vmi.Spec.Volumes = []kubevirt.Volume{{Name: "root"}}
	vmi.Spec.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root"}}
	g.Add(t, vmi)
	mode := corev1.PersistentVolumeFilesystem
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "claim"}}
	pvc.Spec.VolumeMode = &mode
	pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	pvc.Status.Phase = corev1.ClaimBound
	g.Add(t, pvc)
	return g
}

func (g *rig) Guest(context.Context, *kubevirt.VirtualMachineInstance) (Guest, error) {
	return g.guest, nil
}

func (g *rig) Ended(_ context.Context, p *corev1.Pod) (bool, error) {
	return p == nil || ended(p), nil
}

func (g *rig) Reserve(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, volume string) (pod.PVCObjects, func(), *Refusal, error) {
	if g.refusal != nil {
		return nil, nil, g.refusal, nil
	}
	g.turns++
	all := pod.PVCObjects{}
	for _, use := range pod.PVCs(&pod.Only(vmi, volume).Spec) {
		pvc := new(corev1.PersistentVolumeClaim)
		if err := g.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: use.Name}, pvc); err != nil {
			return nil, nil, nil, err
		}
		all[use.Name] = pvc
	}
	return all, func() { g.turns-- }, nil, nil
}

// Control is the node.
func (g *rig) Control(_ context.Context, p *corev1.Pod, _ int, name string, arguments ...string) ([]byte, error) {
	if p.Name != g.own.Name || len(arguments) != 1 {
		return nil, errors.New("not an order to the VM")
	}
	if g.broken {
		return nil, errors.New("the node is away")
	}
	g.orders = append(g.orders, name+" "+arguments[0])
	if name == order.Attach {
		var a order.Attachment
		var d struct{ Name string }
		if err := errors.Join(json.Unmarshal([]byte(arguments[0]), &a), json.Unmarshal(a.Disk, &d)); err != nil {
			return nil, err
		}
		switch have := g.disks[d.Name]; {
		case have.State == order.Detaching:
			return nil, errors.New("the disk is being detached")
		case have.State != "" && have.Container != a.Container:
			return nil, errors.New("already exists")
		}
		g.disks[d.Name] = order.Disk{Name: d.Name, State: order.Attached, Target: "sda", Container: a.Container}
		return json.Marshal(g.disks[d.Name])
	}
	if name == order.MemoryDump {
		var f order.DumpFile
		if err := json.Unmarshal([]byte(arguments[0]), &f); err != nil {
			return nil, err
		}
		if g.dump.File != f.File {
			g.dump = order.Dump{Volume: f.Volume, File: f.File, State: order.DumpWriting, Start: g.r.Now()}
		}
		return json.Marshal(g.dump)
	}
	if name == order.Link {
		return []byte(arguments[0]), nil
	}
	if strings.HasPrefix(name, "card-") {
		return g.card(name, arguments[0])
	}
	if name == order.Grow {
		var of order.Growth
		if err := json.Unmarshal([]byte(arguments[0]), &of); err != nil {
			return nil, err
		}
		return json.Marshal(order.Disk{Name: of.Name, State: order.Attached, Target: "sda", Size: of.Size})
	}
	var n order.Name
	if err := json.Unmarshal([]byte(arguments[0]), &n); err != nil {
		return nil, err
	}
	if name == order.MemoryDumpStatus {
		d := order.Dump{Volume: n.Name, State: order.DumpNone}
		if g.dump.Volume == n.Name {
			d = g.dump
		}
		return json.Marshal(d)
	}
	d, is := g.disks[n.Name]
	switch {
	case !is:
		d = order.Disk{Name: n.Name, State: order.None}
	case name == order.Detach && g.stubborn:
		d.State = order.Detaching
		g.disks[n.Name] = d
	case name == order.Detach:
		delete(g.disks, n.Name)
		d = order.Disk{Name: n.Name, State: order.None}
	}
	return json.Marshal(d)
}

// reconcile does it until nothing is written any more.
func (g *rig) reconcile() ctrl.Result {
	g.t.Helper()
	for range 20 {
		result, err := g.r.Reconcile(g.t.Context(), ctrl.Request{NamespacedName: web})
		if err != nil {
			g.t.Fatal(err)
		}
		if g.Writes() == "" {
			return result
		}
	}
	g.t.Fatal("it never rests")
	return ctrl.Result{}
}

// plug adds a volume to the instance, unplug removes it.
func (g *rig) plug(volume, claim string) {
	g.t.Helper()
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		c := new(kubevirt.PersistentVolumeClaimVolumeSource)
		c.ClaimName, c.Hotpluggable = claim, true
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: volume, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: c}})
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, kubevirt.Disk{
			Name: volume, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusSCSI}},
		})
	})
}

// plugImage adds a registry disk, as the template does.
func (g *rig) plugImage(volume, image string) {
	g.t.Helper()
	g.change(func(vmi *kubevirt.VirtualMachineInstance) {
		metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, pod.AnnotationHotplugged, volume)
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: volume, VolumeSource: kubevirt.VolumeSource{
			ContainerDisk: &kubevirt.ContainerDiskSource{Image: image, Path: "/disk/a"},
		}})
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, kubevirt.Disk{
			Name: volume, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusSCSI, ReadOnly: true}},
		})
	})
}

func (g *rig) unplug(volume string) {
	g.t.Helper()
	g.change(func(vmi *kubevirt.VirtualMachineInstance) { pod.Remove(&vmi.Spec, volume) })
}

func (g *rig) change(do func(*kubevirt.VirtualMachineInstance)) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vmi(), do)
}

func (g *rig) vmi() *kubevirt.VirtualMachineInstance {
	g.t.Helper()
	vmi := new(kubevirt.VirtualMachineInstance)
	if err := g.Get(g.t.Context(), web, vmi); err != nil {
		g.t.Fatal(err)
	}
	return vmi
}

// status returns what the instance reports of a volume; nil for nothing.
func (g *rig) status(volume string) *kubevirt.VolumeStatus {
	g.t.Helper()
	for _, s := range g.vmi().Status.VolumeStatus {
		if s.Name == volume {
			return &s
		}
	}
	return nil
}

// phase checks a volume's phase and reason.
func (g *rig) phase(volume string, phase kubevirt.VolumePhase, reason string) {
	g.t.Helper()
	s := g.status(volume)
	if s == nil || s.Phase != phase || s.Reason != reason {
		g.t.Fatalf("volume %s: %+v; want %s, %s", volume, s, phase, reason)
	}
}

// attachments returns the attachment pods that are not deleted.
func (g *rig) attachments() []corev1.Pod {
	g.t.Helper()
	var list corev1.PodList
	if err := g.List(g.t.Context(), &list, client.MatchingLabels{kubevirt.AppLabel: pod.AttachmentLabelValue}); err != nil {
		g.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// attachment returns the only one.
func (g *rig) attachment() *corev1.Pod {
	g.t.Helper()
	all := g.attachments()
	if len(all) != 1 {
		g.t.Fatalf("%d attachment pods; want 1", len(all))
	}
	return &all[0]
}

// run does the kubelet's work.
func (g *rig) run(p *corev1.Pod) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Spec.NodeName = "node1"
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "hotplug-disk", ContainerID: "containerd://" + container, State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)},
		}}
	})
}

// attached returns a rig whose VM has got a volume.
func attached(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.plug("data", "claim")
	g.reconcile()
	g.run(g.attachment())
	g.reconcile()
	g.phase("data", kubevirt.VolumeReady, "VolumeReady")
	g.orders = nil
	g.Events()
	return g
}

// nodeFunc is a node that always gives the same answer.
type nodeFunc string

func (n nodeFunc) Control(context.Context, *corev1.Pod, int, string, ...string) ([]byte, error) {
	return []byte(n), nil
}
