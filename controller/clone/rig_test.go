package clone

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	api "kubevirt.io/api/clone/v1beta1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const namespace = "default"

// rig is a reconciler with a cluster in memory. The test is the controller of VMs, snapshots and
// restores.
type rig struct {
	*fakecluster.Cluster
	t   *testing.T
	now time.Time
	r   *Reconciler
	c   *vmClone
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, now: time.Now().Truncate(time.Second)}
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types: []func(*runtime.Scheme) error{
			corev1.AddToScheme, kubevirt.AddToScheme, snapshotapi.AddToScheme, api.AddToScheme,
		},
		Status: []client.Object{
			new(snapshotapi.VirtualMachineSnapshot), new(snapshotapi.VirtualMachineRestore), new(kubevirt.VirtualMachine), new(vmClone),
		},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			return b.WithIndex(new(vmClone), indexOf, related)
		},
	})
	g.r = &Reconciler{Client: g.Cached(), Live: g.Client, Events: g.Recorder, Now: func() time.Time { return g.now }}
	return g
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// vm adds a VM with an image and a PVC.
func (g *rig) vm(name string) *kubevirt.VirtualMachine {
	g.t.Helper()
	vm := &kubevirt.VirtualMachine{ObjectMeta: meta(name)}
	vm.Labels = map[string]string{"app": "web"}
	vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{{Name: "image"}, fakecluster.ClaimVolume("root", name+"-root")}
	vm.Status.VolumeSnapshotStatuses = []kubevirt.VolumeSnapshotStatus{{Name: "image"}, {Name: "root", Enabled: true}}
	g.Add(g.t, vm)
	return vm
}

// clone adds a clone to the VM copy.
func (g *rig) clone(kind, source string, change ...func(*api.VirtualMachineCloneSpec)) {
	g.t.Helper()
	g.c = &vmClone{ObjectMeta: meta("copy-it")}
	g.c.UID = "uid-clone"
	g.c.Spec.Source = &corev1.TypedLocalObjectReference{Kind: kind, Name: source}
	g.c.Spec.Target = &corev1.TypedLocalObjectReference{Kind: kindVM, Name: "copy"}
	for _, c := range change {
		c(&g.c.Spec)
	}
	g.Add(g.t, g.c)
}

func (g *rig) try() error {
	g.t.Helper()
	_, err := g.r.Reconcile(g.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "copy-it"}})
	return err
}

// expect reconciles, and checks the phase and the text of the condition Ready.
func (g *rig) expect(phase api.VirtualMachineClonePhase, ready string) {
	g.t.Helper()
	if err := g.try(); err != nil {
		g.t.Fatal(err)
	}
	g.Exists(g.t, g.c)
	if got := g.ready(); g.c.Status.Phase != phase || !strings.Contains(got, ready) {
		g.t.Fatalf("phase %q, %q; want phase %q, %q", g.c.Status.Phase, got, phase, ready)
	}
}

func (g *rig) ready() string {
	for _, c := range g.c.Status.Conditions {
		if c.Type == api.ConditionReady {
			return c.Reason + after(c.Message)
		}
	}
	return ""
}

// has reports whether the clone's snapshot and its restore exist.
func (g *rig) has() (snapshot, restore bool) {
	g.t.Helper()
	return g.Exists(g.t, g.snapshot()), g.Exists(g.t, g.restore())
}

func (g *rig) snapshot() *snapshotapi.VirtualMachineSnapshot {
	return &snapshotapi.VirtualMachineSnapshot{ObjectMeta: meta("tmp-snapshot-uid-clone")}
}

func (g *rig) restore() *snapshotapi.VirtualMachineRestore {
	return &snapshotapi.VirtualMachineRestore{ObjectMeta: meta("tmp-restore-uid-clone")}
}

// taken does what the controller of snapshots does.
func (g *rig) taken(name string, of *kubevirt.VirtualMachine, volumes ...string) {
	g.t.Helper()
	content := &snapshotapi.VirtualMachineSnapshotContent{ObjectMeta: meta("content")}
	content.Spec.Source.VirtualMachine = &snapshotapi.VirtualMachine{ObjectMeta: *of.ObjectMeta.DeepCopy(), Spec: of.Spec}
	for _, v := range volumes {
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, snapshotapi.VolumeBackup{VolumeName: v})
	}
	g.Add(g.t, content)
	s := &snapshotapi.VirtualMachineSnapshot{ObjectMeta: meta(name)}
	fakecluster.Change(g.t, g.Cluster, s, func(s *snapshotapi.VirtualMachineSnapshot) {
		yes := true
		s.Status = &snapshotapi.VirtualMachineSnapshotStatus{ReadyToUse: &yes, VirtualMachineSnapshotContentName: &content.Name}
	})
}

// restored does what the controller of restores does, and returns the PVC, which is not bound.
func (g *rig) restored() *corev1.PersistentVolumeClaim {
	g.t.Helper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: meta("copy-root")}
	if err := g.Create(g.t.Context(), pvc); err != nil {
		g.t.Fatal(err)
	}
	g.vm("copy")
	fakecluster.Change(g.t, g.Cluster, g.restore(), func(rs *snapshotapi.VirtualMachineRestore) {
		yes := true
		rs.Status = &snapshotapi.VirtualMachineRestoreStatus{Complete: &yes}
		rs.Status.Restores = []snapshotapi.VolumeRestore{{VolumeName: "root", PersistentVolumeClaimName: pvc.Name}}
	})
	return pvc
}
