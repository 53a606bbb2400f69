package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const namespace = "default"

// rig is a reconciler with a cluster in memory, a driver of snapshots and a node that
// behaves as package guest of the shim does. The test is the controller of VMs.
type rig struct {
	*fakecluster.Cluster
	t       *testing.T
	now     time.Time
	driver  *fakeDriver
	node    *fakeNode
	volumes map[string]datavolume.State
	r       *Reconciler
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, now: time.Now().Truncate(time.Second), volumes: map[string]datavolume.State{}}
	g.driver = &fakeDriver{g: g, served: true, classes: []volumesnapshot.Class{{Name: "fast", Driver: "csi"}}, all: map[string]volumesnapshot.Snapshot{}}
	g.node = &fakeNode{g: g}
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types: []func(*runtime.Scheme) error{
			corev1.AddToScheme, appsv1.AddToScheme, storagev1.AddToScheme, kubevirt.AddToScheme, api.AddToScheme,
		},
		Status: []client.Object{new(vmSnapshot), new(vmContent), new(kubevirt.VirtualMachine), new(instance)},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			return b.WithIndex(new(vmSnapshot), indexSource, sourceName)
		},
	})
	g.restart()
	g.Add(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "csi"}, Provisioner: "csi"},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "local"})
	return g
}

// restart replaces the controller by one that knows nothing.
func (g *rig) restart() {
	g.r = NewReconciler(Options{
		Client: g.Cached(), Live: g.Client, Revisions: g.Client, Volumes: g.driver, DataVolumes: g, Pods: g.node, Nodes: g.node,
		Holder: pod.Holder{Image: "holder"}, Events: g.Recorder, Now: func() time.Time { return g.now },
	})
}

// Get is CDI's.
func (g *rig) Get(_ context.Context, _, name string) (datavolume.State, error) {
	return g.volumes[name], nil
}

// fakeDriver is external-snapshotter with a CSI driver, which takes a snapshot when the test
// says so.
type fakeDriver struct {
	g       *rig
	served  bool
	classes []volumesnapshot.Class
	all     map[string]volumesnapshot.Snapshot
	// metas are what the snapshots were created with.
	metas map[string]metav1.ObjectMeta
	// pvcs are those of which snapshots were taken.
	pvcs []string
	fail error
	made int
}

func (d *fakeDriver) Classes(context.Context) ([]volumesnapshot.Class, bool, error) {
	return d.classes, d.served, nil
}

func (d *fakeDriver) List(_ context.Context, _ string, labels map[string]string) (map[string]volumesnapshot.Snapshot, error) {
	all := map[string]volumesnapshot.Snapshot{}
	for name, s := range d.all {
		if d.metas[name].Labels["snapshot.kubevirt.io/source-vm-name"] == labels["snapshot.kubevirt.io/source-vm-name"] {
			all[name] = s
		}
	}
	return all, nil
}

func (d *fakeDriver) Create(_ context.Context, meta metav1.ObjectMeta, pvc, class string) error {
	if d.fail != nil && d.made > 0 {
		return d.fail
	}
	for key, value := range meta.Labels {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return fmt.Errorf("label %s: %v", key, problems)
		}
	}
	if class == "" || pvc == "" {
		return errors.New("no PVC or no class")
	}
	d.made++
	if d.metas == nil {
		d.metas = map[string]metav1.ObjectMeta{}
	}
	d.metas[meta.Name] = meta
	d.pvcs = append(d.pvcs, pvc)
	d.all[meta.Name] = volumesnapshot.Snapshot{Name: meta.Name, UID: types.UID(fmt.Sprintf("vs-%d", d.made))}
	return nil
}

func (d *fakeDriver) Delete(_ context.Context, _ string, s volumesnapshot.Snapshot) error {
	delete(d.all, s.Name)
	return nil
}

// take takes the snapshots whose names end as given, all without one.
func (d *fakeDriver) take(ready bool, suffixes ...string) {
	for name, s := range d.all {
		if len(suffixes) == 0 || slices.ContainsFunc(suffixes, func(x string) bool { return strings.HasSuffix(name, x) }) {
			at := metav1.NewTime(d.g.now)
			s.CreationTime, s.ReadyToUse = &at, &ready
			d.all[name] = s
		}
	}
}

// fakeNode is the node of the VM's pod.
type fakeNode struct {
	g *rig
	// until is when the node thaws the guest; the zero time for a guest that is not frozen.
	until  time.Time
	orders []string
	fail   error
	// asked is called for each order; may be nil.
	asked func(ctx context.Context, name string)
	// saved is the state of the last save of the guest's memory, disks those that it holds.
	saved order.SaveState
	disks []string
}

func (n *fakeNode) PodOf(_ context.Context, _ *instance, name string) (*corev1.Pod, error) {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, nil
}

func (n *fakeNode) frozen() bool { return n.g.now.Before(n.until) }

func (n *fakeNode) Control(ctx context.Context, _ *corev1.Pod, _ int, name string, arguments ...string) ([]byte, error) {
	n.orders = append(n.orders, strings.Join(append([]string{name}, arguments...), " "))
	if n.asked != nil {
		n.asked(ctx, name)
	}
	if n.fail != nil {
		return nil, n.fail
	}
	if name == order.MemorySave || name == order.MemorySaveEnd {
		return n.control(name, arguments[0])
	}
	limit := time.Duration(0)
	if len(arguments) == 1 {
		limit, _ = time.ParseDuration(arguments[0])
	}
	switch name {
	case controlFreeze:
		n.until = n.g.now.Add(limit)
	case controlKeepFrozen:
		if !n.frozen() {
			return []byte("thawed"), nil
		}
		n.until = n.g.now.Add(limit)
		return []byte("frozen\n"), nil
	case controlUnfreeze:
		n.until = time.Time{}
	default:
		return nil, errors.New("no such control")
	}
	return nil, nil
}

// said returns the orders since the last call.
func (n *fakeNode) said() string {
	all := strings.Join(n.orders, ", ")
	n.orders = nil
	return all
}

// vm adds a VM with two PVCs that can have snapshots, and volumes that cannot.
func (g *rig) vm(change ...func(*kubevirt.VirtualMachine)) *kubevirt.VirtualMachine {
	g.t.Helper()
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: map[string]string{"app": "web"}}}
	vm.Spec.RunStrategy = new(kubevirt.RunStrategyHalted)
	vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	vm.Spec.Template.Spec.Hostname = "now"
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{
		fakecluster.ClaimVolume("root", "claim-root"), fakecluster.ClaimVolume("data", "claim-data"),
		{Name: "disk", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "example.com/disk"}}},
	}
	for _, name := range []string{"root", "data"} {
		g.claim("claim-"+name, "csi")
	}
	for _, c := range change {
		c(vm)
	}
	g.Add(g.t, vm)
	return vm
}

func (g *rig) claim(name, class string) {
	g.t.Helper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{"of": name}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "long"},
	}}
	pvc.Spec.StorageClassName = &class
	pvc.Status.Phase = corev1.ClaimBound
	if err := g.Create(g.t.Context(), pvc); err != nil {
		g.t.Fatal(err)
	}
}

// runs gives a VM an instance that runs, and has an agent.
func (g *rig) runs(vm *kubevirt.VirtualMachine, conditions ...kubevirt.VirtualMachineInstanceConditionType) *instance {
	g.t.Helper()
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "started"}}
	started := vm.Spec.DeepCopy()
	started.Template.Spec.Hostname = "started"
	data, err := pod.RevisionData(map[string]any{"spec": started})
	if err != nil {
		g.t.Fatal(err)
	}
	revision.Data = data
	vmi := &instance{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: vm.Name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)},
	}}
	vmi.Spec = *vm.Spec.Template.Spec.DeepCopy()
	vmi.Status.Phase, vmi.Status.VirtualMachineRevisionName = kubevirt.Running, revision.Name
	for _, c := range conditions {
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceCondition{Type: c, Status: corev1.ConditionTrue})
	}
	g.Add(g.t, revision, vmi)
	return vmi
}

// snapshot adds a snapshot of the VM.
func (g *rig) snapshot(name string, change ...func(*vmSnapshot)) {
	g.t.Helper()
	group := kubevirt.GroupVersion.Group
	s := &vmSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(g.now), Finalizers: []string{finalizer}}}
	s.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kindVM, Name: "web"}
	for _, c := range change {
		c(s)
	}
	g.Add(g.t, s)
}

func (g *rig) reconcile(name string) ctrl.Result {
	g.t.Helper()
	result, err := g.r.Reconcile(g.t.Context(), request(name))
	if err != nil {
		g.t.Fatal(err)
	}
	return result
}

func (g *rig) get(name string) *vmSnapshot {
	g.t.Helper()
	s := &vmSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if !g.Exists(g.t, s) {
		g.t.Fatalf("snapshot %s is gone", name)
	}
	if s.Status == nil {
		s.Status = new(api.VirtualMachineSnapshotStatus)
	}
	return s
}

// content returns the snapshot's content; nil for none.
func (g *rig) content(s *vmSnapshot) *vmContent {
	g.t.Helper()
	c := &vmContent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contentName(s)}}
	if !g.Exists(g.t, c) {
		return nil
	}
	return c
}

// is compares the phase, and the reason of the condition Progressing.
func (g *rig) is(name string, phase api.VirtualMachineSnapshotPhase, progressing string) *vmSnapshot {
	g.t.Helper()
	s := g.get(name)
	reason := ""
	if c := find(s, api.ConditionProgressing); c != nil {
		reason = c.Reason
	}
	if s.Status.Phase != phase || !strings.Contains(reason, progressing) {
		g.t.Fatalf("snapshot %s is %s, progressing %q; want %s, %q", name, s.Status.Phase, reason, phase, progressing)
	}
	return s
}

// lockedBy returns the snapshot that has locked the VM.
func (g *rig) lockedBy() string {
	g.t.Helper()
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	if !g.Exists(g.t, vm) {
		g.t.Fatal("the VM is gone")
	}
	in := vm.Status.SnapshotInProgress
	if has := slices.Contains(vm.Finalizers, sourceFinalizer); has != (in != nil) {
		g.t.Errorf("the VM is locked by %v, its finalizers are %v", in, vm.Finalizers)
	}
	if in == nil {
		return ""
	}
	return *in
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// indicationsOf returns what the snapshot's status indicates.
func indicationsOf(s *vmSnapshot) []api.Indication {
	var all []api.Indication
	for _, i := range s.Status.SourceIndications {
		all = append(all, i.Indication)
	}
	return all
}
