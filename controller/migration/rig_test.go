package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	migrations "kubevirt.io/api/migrations/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/hotplug"
	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/pod"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// rig is the reconcilers of migrations and instances with a cluster in memory and nodes
// that behave as package order says. The test is the scheduler and the kubelets.
type rig struct {
	*fakecluster.Cluster
	t     *testing.T
	now   time.Time
	nodes *fakeNodes
	r     *Reconciler
	vmis  *instances.Reconciler
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, now: time.Now().Truncate(time.Second), nodes: &fakeNodes{states: map[string]string{}, fail: map[string]error{}}}
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types:  []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, nodev1.AddToScheme, kubevirt.AddToScheme, migrations.AddToScheme},
		Status: []client.Object{new(instance), new(migration)},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			for name, key := range instances.NodeIndexes() {
				b = b.WithIndex(new(corev1.Node), name, key)
			}
			for name, key := range instances.Indexes() {
				b = b.WithIndex(new(corev1.Pod), name, key)
			}
			for name, key := range hotplug.Indexes() {
				b = b.WithIndex(new(corev1.Pod), name, key)
			}
			for name, key := range indexes() {
				b = b.WithIndex(new(migration), name, key)
			}
			return b.WithIndex(new(instance), index.PVC, instances.PVCNames)
		},
	})
	g.restart()
	return g
}

// restart replaces the controller by one that knows nothing.
func (g *rig) restart() {
	now := func() time.Time { return g.now }
	g.vmis = instances.NewReconciler(instances.Options{
		Client: g.Cached(), Live: g.Client, Events: g.Recorder, Pods: pod.Options{RuntimeClass: "vm"}, Nodes: obedient{}, Now: now,
	})
	g.r = NewReconciler(Options{Client: g.Cached(), Live: g.Client, Events: g.Recorder, Pods: g.vmis.Pods, Nodes: g.nodes, Now: now,
		Volumes: &hotplug.Moves{Client: g.Cached(), Events: g.Recorder, Holder: pod.Holder{Image: "holder"}}})
}

// obedient are nodes that carry out the orders of instances, which no migration gives.
type obedient struct{}

func (obedient) Control(context.Context, *corev1.Pod, int, string, ...string) ([]byte, error) {
	return nil, nil
}

const (
	namespace = "default"
	name      = "web"
)

// running adds an instance that runs on node1 and can be migrated.
func (g *rig) running(changes ...func(*instance)) *instance {
	g.t.Helper()
	g.boot(g.starting(changes...), "node1", "10.0.0.1")
	g.reconcile()
	g.reconcile()
	g.Writes()
	g.Events()
	return g.vmi()
}

// starting adds nodes, and an instance, and returns its pod.
func (g *rig) starting(changes ...func(*instance)) *corev1.Pod {
	g.t.Helper()
	g.addNode("node1")
	g.addNode("node2")
	masquerade := kubevirt.Interface{Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)}}
	vmi := &instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: kubevirt.VirtualMachineInstanceSpec{
			Domain: kubevirt.DomainSpec{Devices: kubevirt.Devices{
				Disks:      []kubevirt.Disk{{Name: "root", DiskDevice: kubevirt.DiskDevice{Disk: new(kubevirt.DiskTarget)}}},
				Interfaces: []kubevirt.Interface{masquerade},
			}},
			Networks: []kubevirt.Network{*kubevirt.DefaultPodNetwork()},
			Volumes: []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
				ContainerDisk: &kubevirt.ContainerDiskSource{Image: "example.com/fedora:41"},
			}}},
		},
	}
	for _, change := range changes {
		change(vmi)
	}
	g.Add(g.t, vmi)
	g.reconcile()
	return g.pod(pod.Name(vmi))
}

func (g *rig) addNode(name string) {
	g.t.Helper()
	g.Add(g.t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
}

// ready sets whether the kubelet of a node is heard.
func (g *rig) ready(name string, status corev1.ConditionStatus) *corev1.Node {
	g.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	fakecluster.Change(g.t, g.Cluster, n, func(n *corev1.Node) { n.Status.Conditions[0].Status = status })
	return n
}

// deleteNode deletes a Node whose kubelet is heard or not.
func (g *rig) deleteNode(name string, ready corev1.ConditionStatus) {
	g.t.Helper()
	n := g.ready(name, ready)
	if err := g.Delete(g.t.Context(), n); err != nil {
		g.t.Fatal(err)
	}
	g.vmis.NodeDeleted(name, n)
}

// migrate adds a migration of the instance.
func (g *rig) migrate() *migration {
	g.t.Helper()
	m := &migration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "move", Finalizers: []string{kubevirt.VirtualMachineInstanceMigrationFinalizer}},
		Spec:       kubevirt.VirtualMachineInstanceMigrationSpec{VMIName: name, AddedNodeSelector: map[string]string{"zone": "b"}},
	}
	m.Labels = map[string]string{kubevirt.MigrationSelectorLabel: name}
	g.Add(g.t, m)
	return m
}

// boot does the scheduler's and the kubelet's work for a pod.
func (g *rig) boot(p *corev1.Pod, node, ip string) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Status.Phase = corev1.PodRunning
		p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: condition.VMReady, Status: corev1.ConditionTrue},
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Container, State: corev1.ContainerState{Running: new(corev1.ContainerStateRunning)},
		}}
	})
}

// end does the kubelet's work for a VM that has ended.
func (g *rig) end(p *corev1.Pod, code int32, reason string) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Container, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason},
		}}}
	})
}

// reconcile does it once for the instance and for each migration; errors that the test
// has injected are as good as a crash.
func (g *rig) reconcile() ctrl.Result {
	g.t.Helper()
	var last ctrl.Result
	req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
	for _, m := range g.migrations() {
		result, err := g.r.Reconcile(g.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&m)})
		if err != nil && !errors.Is(err, errInjected) {
			g.t.Fatal(err)
		}
		last = result
	}
	if _, err := g.vmis.Reconcile(g.t.Context(), req); err != nil && !errors.Is(err, errInjected) {
		g.t.Fatal(err)
	}
	return last
}

var errInjected = errors.New("injected")

// settle reconciles, while time passes, until the migration has ended.
func (g *rig) settle() *migration {
	g.t.Helper()
	for range 40 {
		g.reconcile()
		if m := g.migration(); m == nil || m.IsFinal() {
			g.reconcile()
			return m
		}
		g.now = g.now.Add(15 * time.Second)
	}
	g.t.Fatalf("the migration does not end: %+v; nodes %v", g.migration().Status, g.nodes.states)
	return nil
}

func (g *rig) migrations() []migration {
	g.t.Helper()
	var list kubevirt.VirtualMachineInstanceMigrationList
	if err := g.List(g.t.Context(), &list); err != nil {
		g.t.Fatal(err)
	}
	return list.Items
}

// migration returns the only one; nil for none.
func (g *rig) migration() *migration {
	g.t.Helper()
	all := g.migrations()
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}

func (g *rig) vmi() *instance {
	g.t.Helper()
	vmi := &instance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if !g.Exists(g.t, vmi) {
		return nil
	}
	return vmi
}

// pod returns the pod of a name; nil for none.
func (g *rig) pod(name string) *corev1.Pod {
	g.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if !g.Exists(g.t, p) {
		return nil
	}
	return p
}

func (g *rig) source() *corev1.Pod { return g.pod(pod.Name(g.vmi())) }
func (g *rig) target() *corev1.Pod { return g.pod(pod.TargetName(g.vmi(), g.migration())) }

// to takes a new migration to a phase, in which the nodes do what they should.
func (g *rig) to(phase kubevirt.VirtualMachineInstanceMigrationPhase) {
	g.t.Helper()
	g.migrate()
	if phase == kubevirt.MigrationPending {
		return
	}
	g.reconcile()
	if phase == kubevirt.MigrationScheduling {
		return
	}
	g.boot(g.target(), "node2", "10.0.0.2")
	if phase == kubevirt.MigrationPreparingTarget {
		g.nodes.fail[order.Receive] = errors.New("busy")
		g.reconcile()
		delete(g.nodes.fail, order.Receive)
		return
	}
	g.reconcile()
	if got := g.migration().Status.Phase; got != phase {
		g.t.Fatalf("phase %s, want %s: %+v", got, phase, g.migration().Status)
	}
}

// fakeNodes are the nodes' shims, by their pods.
type fakeNodes struct {
	states map[string]string
	// names of the pods, as the orders name them.
	sourcePod, targetPod string
	fail                 map[string]error // by order
	answer               map[string]string
	orders               []string
	plugged              []order.Plugged // the disks that the guest has got
	departed             order.Departure // the last such order
	received             order.Reception // the last such order
	sent                 order.Sending   // the last such order
	unsettled            bool
	paused               bool // the source's guest is paused while it is copied
	reason               string
	deaf                 string // the pod whose node does not answer
}

// Control implements nodes.
func (f *fakeNodes) Control(_ context.Context, p *corev1.Pod, most int, name string, arguments ...string) ([]byte, error) {
	f.orders = append(f.orders, name)
	if name == order.Receive && len(arguments) == 1 {
		if err := json.Unmarshal([]byte(arguments[0]), &f.received); err != nil {
			return nil, err
		}
	}
	if name == order.Identify && len(arguments) == 1 {
		if err := json.Unmarshal([]byte(arguments[0]), &f.departed); err != nil {
			return nil, err
		}
	}
	if f.fail[name] != nil {
		return nil, f.fail[name]
	}
	if f.deaf == p.Name {
		return nil, errors.New("no route to host")
	}
	if text, ok := f.answer[name]; ok {
		return []byte(text), nil
	}
	if most > 1<<20 || len(arguments) != 1 {
		return nil, fmt.Errorf("order %s with %d arguments and an answer of %d bytes", name, len(arguments), most)
	}
	var o struct {
		order.Migration
		Run   bool         `json:"run"`
		Guest *order.Guest `json:"guest"`
	}
	if err := json.Unmarshal([]byte(arguments[0]), &o); err != nil {
		return nil, err
	}
	identity := order.Identity{Fingerprint: strings.Repeat("ab", 32)}
	switch name {
	case order.Identify:
		f.sourcePod = p.Name
		identity.Guest = guest()
		identity.Guest.Plugged = f.plugged
		return json.Marshal(identity)
	case order.Receive:
		f.targetPod = p.Name
		want := guest()
		want.Plugged = f.plugged
		if !reflect.DeepEqual(o.Guest, want) {
			return nil, fmt.Errorf("the guest is %+v", o.Guest)
		}
		if f.states[p.Name] == "" {
			f.states[p.Name] = stateIncoming
		}
		identity.Address = p.Status.PodIP + ":4711"
		return json.Marshal(identity)
	case order.Send:
		if err := json.Unmarshal([]byte(arguments[0]), &f.sent); err != nil {
			return nil, err
		}
		if f.states[p.Name] == "" {
			f.states[p.Name] = stateSending
		}
	case order.Cancel:
		switch f.states[p.Name] {
		case stateSending:
			f.states[p.Name] = stateKept
		case stateIncoming:
			f.states[p.Name] = stateRefused
		}
	case order.Decide:
		f.states[p.Name] = stateKept
	}
	return json.Marshal(order.Report{
		Migration: o.Migration, State: f.states[p.Name], Reason: f.reason, Paused: f.paused && p.Name == f.sourcePod, Unsettled: f.unsettled && f.states[p.Name] == stateHandedOver,
	})
}

// guest is what the source says of its VM.
func guest() *order.Guest {
	return &order.Guest{UUID: "u", Disks: map[string]string{"root": "sha256:1"}}
}

// take has the target take the guest.
func (f *fakeNodes) take() { f.states[f.sourcePod], f.states[f.targetPod] = stateLeft, stateTaken }

func (f *fakeNodes) gave(name string) bool { return slices.Contains(f.orders, name) }
