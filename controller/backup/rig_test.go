package backup

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	api "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/mount"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const namespace = "default"

// created is when backups are created.
var created = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// rig is the reconcilers with a cluster in memory and the node of the VM web. The test is the kubelet.
type rig struct {
	*fakecluster.Cluster
	t        *testing.T
	node     *fakeNode
	r        *Reconciler
	tracking *Tracking
	now      time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, node: &fakeNode{backups: map[string]*order.Backup{}}, now: created.Add(time.Minute)}
	g.node.own = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own", UID: "own"}}
	g.node.own.Spec.NodeName = "node-1"
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types:  []func(*runtime.Scheme) error{corev1.AddToScheme, kubevirt.AddToScheme, api.AddToScheme, exportapi.AddToScheme},
		Status: []client.Object{new(exportapi.VirtualMachineExport), new(corev1.Pod), new(vmBackup), new(tracker), new(kubevirt.VirtualMachine), new(instance)},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			return b.WithIndex(new(vmBackup), indexSource, sourceOf)
		},
	})
	g.r = &Reconciler{
		Client: g.Cached(), Live: g.Client, Nodes: g.node, Events: g.Recorder, Now: func() time.Time { return g.now },
		Mounts: mount.Mounts{Live: g.Client, Uncached: g.Client, Pods: g.node, Holder: pod.Holder{Image: "holder"}},
	}
	g.tracking = &Tracking{Client: g.Cached(), Live: g.Client, Config: config.Source{Namespace: "nodevirt", Reader: g.Client}}
	g.Add(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"tier": "gold"}}})
	return g
}

// vm adds a VM whose instance runs, and whose blocks are tracked, with the PVC for backups.
func (g *rig) vm() {
	g.t.Helper()
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: map[string]string{"backup": "yes"}}}
	g.Add(g.t, vm)
	g.instance("vmi-1")
	g.Add(g.t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "backups"},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	})
}

// instance adds the VM's instance.
func (g *rig) instance(uid string) {
	g.t.Helper()
	vmi := &instance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	vmi.UID = types.UID(uid)
	vmi.Spec.Volumes = []kubevirt.Volume{
		fakecluster.ClaimVolume("root", "claim-root"), fakecluster.ClaimVolume("data", "claim-data"), fakecluster.ClaimVolume("cd", "claim-cd"),
		fakecluster.ClaimVolume("folder", "claim-folder"),
		{Name: "image", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "example.com/disk"}}},
	}
	for _, name := range []string{"root", "data", "image"} {
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, kubevirt.Disk{Name: name})
	}
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks,
		kubevirt.Disk{Name: "cd", DiskDevice: kubevirt.DiskDevice{CDRom: new(kubevirt.CDRomTarget)}})
	vmi.Status.Phase = kubevirt.Running
	vmi.Status.ChangedBlockTracking = &kubevirt.ChangedBlockTrackingStatus{State: kubevirt.ChangedBlockTrackingEnabled}
	g.Add(g.t, vmi)
}

func (g *rig) tracker(name string) {
	g.t.Helper()
	t := &tracker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	t.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: new(kubevirt.GroupVersion.Group), Kind: kindVM, Name: "web"}
	g.Add(g.t, t)
}

// backup adds a backup of a tracker.
func (g *rig) backup(name string, change ...func(*vmBackup)) {
	g.t.Helper()
	b := &vmBackup{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(created),
	}}
	b.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: new(api.SchemeGroupVersion.Group), Kind: kindTracker, Name: "nightly"}
	b.Spec.PvcName = new("backups")
	for _, c := range change {
		c(b)
	}
	g.Add(g.t, b)
}

func (g *rig) reconcile(name string) ctrl.Result {
	g.t.Helper()
	result, err := g.r.Reconcile(g.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}})
	assert.NilError(g.t, err)
	return result
}

func (g *rig) get(name string) *vmBackup {
	g.t.Helper()
	b := new(vmBackup)
	assert.NilError(g.t, g.Get(g.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, b))
	return b
}

// condition returns a condition of a backup as STATUS REASON: MESSAGE.
func (g *rig) condition(name string, of api.ConditionType) string {
	g.t.Helper()
	b := g.get(name)
	if b.Status == nil {
		return ""
	}
	c := meta.FindStatusCondition(b.Status.Conditions, string(of))
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

func (g *rig) latest(name string) string {
	g.t.Helper()
	t := new(tracker)
	assert.NilError(g.t, g.Get(g.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, t))
	return latest(t)
}

func (g *rig) pods() []corev1.Pod {
	g.t.Helper()
	var all corev1.PodList
	assert.NilError(g.t, g.List(g.t.Context(), &all))
	return all.Items
}

// mounts reconciles a backup until its attachment pod is there, and has it run.
func (g *rig) mounts(name string) {
	g.t.Helper()
	g.reconcile(name)
	all := g.pods()
	assert.Equal(g.t, len(all), 1)
	fakecluster.Change(g.t, g.Cluster, &all[0], func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			ContainerID: "containerd://" + strings.Repeat("a", 64), State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)},
		}}
	})
}

// fakeNode is the node of the VM's pod. It makes a backup of a name once, and ends it when the test
// says so.
type fakeNode struct {
	own     *corev1.Pod
	backups map[string]*order.Backup
	// ordered is the last order for a backup, cancelled those that were cancelled.
	ordered   order.BackupFiles
	cancelled []string
	// finished are those that were finished.
	finished []string
	// old says that the node knows no mode Pull.
	old  bool
	fail error
}

func (n *fakeNode) PodOf(context.Context, *instance, string) (*corev1.Pod, error) { return n.own, nil }

func (n *fakeNode) Control(_ context.Context, _ *corev1.Pod, _ int, name string, arguments ...string) ([]byte, error) {
	if n.fail != nil {
		return nil, n.fail
	}
	switch name {
	case order.BackUp:
		var a order.BackupFiles
		if err := json.Unmarshal([]byte(arguments[0]), &a); err != nil {
			return nil, err
		}
		n.ordered = a
		b := n.backups[a.Name]
		if b == nil {
			b = &order.Backup{Name: a.Name, State: order.BackupWriting, Incremental: a.Since != "", Start: time.Now(), Quiesce: order.QuiesceSucceeded}
			if a.Pull && !n.old {
				b.State = order.BackupReady
			}
			for _, d := range a.Disks {
				b.Disks = append(b.Disks, order.BackedUp{Disk: d.Disk, Target: "vd" + d.Disk[:1]})
			}
			n.backups[a.Name] = b
		}
		return json.Marshal(b)
	case order.BackupCancel:
		var a order.Name
		if err := json.Unmarshal([]byte(arguments[0]), &a); err != nil {
			return nil, err
		}
		n.cancelled = append(n.cancelled, a.Name)
		b := n.backups[a.Name]
		if b == nil {
			b = &order.Backup{Name: a.Name, State: order.BackupNone}
		}
		return json.Marshal(b)
	case order.BackupServe:
		var a order.BackupReaders
		if err := json.Unmarshal([]byte(arguments[0]), &a); err != nil {
			return nil, err
		}
		n.backups[a.Name].Readers = a.Container
		return json.Marshal(n.backups[a.Name])
	case order.BackupFinish:
		var a order.Name
		if err := json.Unmarshal([]byte(arguments[0]), &a); err != nil {
			return nil, err
		}
		n.finished = append(n.finished, a.Name)
		return json.Marshal(n.backups[a.Name])
	}
	return nil, errors.New("no such control")
}

// ends has the node end the last backup.
func (n *fakeNode) ends(state order.BackupState, change ...func(*order.Backup)) {
	b := n.backups[n.ordered.Name]
	b.State, b.Quiesce = state, order.QuiesceSucceeded
	for _, c := range change {
		c(b)
	}
}
