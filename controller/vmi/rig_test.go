package vmi

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/hotplug"
	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// rig is a reconciler with a cluster in memory and a fake clock. The test is the
// scheduler and the kubelet.
type rig struct {
	*fakecluster.Cluster
	t   *testing.T
	now time.Time
	r   *Reconciler
	cdi *fakeDataVolumes
	// orders are those that nodes got, unless they fail with refusal. answers are by name.
	orders  []string
	answers map[string]string
	refusal error
	// options are those of r.
	options Options
}

// fakeDataVolumes is what CDI says of the only DataVolume.
type fakeDataVolumes struct{ datavolume.State }

func (f *fakeDataVolumes) Get(context.Context, string, string) (datavolume.State, error) {
	return f.State, nil
}

var web = types.NamespacedName{Namespace: "default", Name: "web"}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, now: time.Now().Truncate(time.Second), cdi: new(fakeDataVolumes)}
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types:  []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, storagev1.AddToScheme, nodev1.AddToScheme, kubevirt.AddToScheme},
		Status: []client.Object{new(kubevirt.VirtualMachineInstance)},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			for name, key := range Indexes() {
				b = b.WithIndex(new(corev1.Pod), name, key)
			}
			for name, key := range hotplug.Indexes() {
				b = b.WithIndex(new(corev1.Pod), name, key)
			}
			for name, key := range NodeIndexes() {
				b = b.WithIndex(new(corev1.Node), name, key)
			}
			b = b.WithIndex(new(kubevirt.VirtualMachineInstance), index.PVC, PVCNames)
			return b.WithIndex(new(corev1.Event), "involvedObject.uid", func(o client.Object) []string {
				return []string{string(o.(*corev1.Event).InvolvedObject.UID)}
			})
		},
	})
	g.options = Options{
		Client: g.Cached(), Live: g.Client, Events: g.Recorder,
		DataVolumes: g.cdi, Nodes: g, Holder: pod.Holder{Image: "example.com/holder:1"}, Pods: pod.Options{RuntimeClass: "vm"}, Now: func() time.Time { return g.now },
	}
	g.wire(func(*Options) {})
	return g
}

// Control implements Nodes.
func (g *rig) Control(_ context.Context, p *corev1.Pod, _ int, name string, _ ...string) ([]byte, error) {
	if g.refusal != nil {
		return nil, g.refusal
	}
	g.orders = append(g.orders, p.Name+" "+name)
	return []byte(g.answers[name]), nil
}

// wire makes the reconciler again, with changed options.
func (g *rig) wire(change func(*Options)) {
	change(&g.options)
	g.r = NewReconciler(g.options)
}

const spec = `{"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "root", "disk": {}}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": "example.com/fedora:41"}}]}`

// add creates the instance, as admission leaves it.
func (g *rig) add(change ...func(*kubevirt.VirtualMachineInstance)) *kubevirt.VirtualMachineInstance {
	g.t.Helper()
	sound, problems := manifest.CheckVMI(field.NewPath("spec"), decoded(g.t, spec))
	if len(problems) > 0 {
		g.t.Fatal(problems)
	}
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}, Spec: *sound}
	for _, c := range change {
		c(vmi)
	}
	g.Add(g.t, vmi)
	return vmi
}

// reconcile does it once, and fails the test if that fails.
func (g *rig) reconcile() ctrl.Result {
	g.t.Helper()
	result, err := g.r.Reconcile(g.t.Context(), ctrl.Request{NamespacedName: web})
	if err != nil {
		g.t.Fatal(err)
	}
	return result
}

func (g *rig) vmi() *kubevirt.VirtualMachineInstance {
	g.t.Helper()
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	if !g.Exists(g.t, vmi) {
		return nil
	}
	return vmi
}

// pods returns all pods.
func (g *rig) pods() []corev1.Pod {
	g.t.Helper()
	var list corev1.PodList
	if err := g.List(g.t.Context(), &list); err != nil {
		g.t.Fatal(err)
	}
	return list.Items
}

// onePod is the only pod.
func (g *rig) onePod() *corev1.Pod {
	g.t.Helper()
	all := g.pods()
	if len(all) != 1 {
		g.t.Fatalf("%d pods, want 1", len(all))
	}
	return &all[0]
}

// started returns the pod of an instance that runs on a ready node.
func (g *rig) started() *corev1.Pod {
	g.t.Helper()
	g.add()
	g.reconcile()
	p := g.onePod()
	g.bind(p, "node1")
	g.state(p, running)
	g.reconcile()
	g.Writes()
	g.Events()
	return p
}

// bind does the scheduler's work. It creates the node.
func (g *rig) bind(p *corev1.Pod, node string) {
	g.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if !g.Exists(g.t, n) {
		g.Add(g.t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Status.Phase = corev1.PodPending
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(g.now),
		}}
	})
}

// node returns a Node of a name, to be changed.
func (g *rig) node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// ready sets whether the kubelet of a node is heard.
func (g *rig) ready(node string, status corev1.ConditionStatus) {
	g.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	fakecluster.Change(g.t, g.Cluster, n, func(n *corev1.Node) { n.Status.Conditions[0].Status = status })
}

// deleteNode deletes a Node in its last state.
func (g *rig) deleteNode(name string) {
	g.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !g.Exists(g.t, n) {
		g.t.Fatalf("no node %s", name)
	}
	if err := g.Delete(g.t.Context(), n); err != nil {
		g.t.Fatal(err)
	}
	g.r.NodeDeleted(name, n)
}

// renew does the kubelet's work: it renews the lease of its node.
func (g *rig) renew(node string) {
	g.t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}}
	if !g.Exists(g.t, l) {
		g.Add(g.t, &coordinationv1.Lease{ObjectMeta: l.ObjectMeta})
	}
	fakecluster.Change(g.t, g.Cluster, l, func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NewMicroTime(g.now)) })
}

// state does the kubelet's work: it reports the state of the VM's container.
func (g *rig) state(p *corev1.Pod, s corev1.ContainerState) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Container, State: s}}
		switch {
		case s.Running != nil:
			p.Status.Phase = corev1.PodRunning
		case s.Terminated != nil && s.Terminated.ExitCode == 0:
			p.Status.Phase = corev1.PodSucceeded
		case s.Terminated != nil:
			p.Status.Phase = corev1.PodFailed
		}
	})
}

// condition returns the instance's condition of a type.
func (g *rig) condition(kind kubevirt.VirtualMachineInstanceConditionType) *cond {
	g.t.Helper()
	return find(g.vmi().Status.Conditions, kind)
}

// expect holds what was written since the last time against what should have been.
func (g *rig) expect(writes string) {
	g.t.Helper()
	if got := g.Writes(); got != writes {
		g.t.Errorf("writes: %s\nwant:   %s", got, writes)
	}
}

// decoded decodes JSON as admission does.
func decoded(t *testing.T, text string) any {
	t.Helper()
	var tree any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}
