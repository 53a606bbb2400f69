package migration

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestEvacuation: an evicted instance gets one migration at a time, until it has left
// its node.
func TestEvacuation(t *testing.T) {
	g := newRig(t)
	vmi := g.running()
	e := &Evacuations{Client: g.Cached(), Events: g.Recorder, Now: func() time.Time { return g.now }}
	evacuate := func() time.Duration {
		t.Helper()
		result, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(vmi)})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	evacuate()
	if g.migration() != nil {
		t.Fatal("it should stay")
	}
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *instance) { vmi.Status.EvacuationNodeName = "node1" })
	evacuate()
	evacuate()
	all := g.migrations()
	if len(all) != 1 || *all[0].Spec.Priority != kubevirt.PrioritySystemCritical || all[0].Annotations[kubevirt.EvacuationMigrationAnnotation] != "node1" {
		t.Fatalf("%+v", all)
	}
	g.reconcile()
	g.boot(g.target(), "node2", "10.0.0.2")
	g.reconcile()
	g.nodes.take()
	if m := g.settle(); m.Status.Phase != kubevirt.MigrationSucceeded {
		t.Fatalf("%+v", m.Status)
	}
	evacuate()
	if got := g.vmi().Status; got.EvacuationNodeName != "" || got.NodeName != "node2" || len(g.migrations()) != 1 {
		t.Errorf("%+v, %d migrations", got, len(g.migrations()))
	}
}

// TestEvacuationEnds: an instance that has left its node, or whose drain was abandoned after a failure, need not leave any
// more; one whose node is still cordoned must.
func TestEvacuationEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		node    string
		cordon  bool
		failed  bool
		cleared bool
	}{
		"it is on another node":             {node: "node2", cleared: true},
		"the node is still cordoned":        {node: "node1", cordon: true, failed: true},
		"the drain was abandoned":           {node: "node1", failed: true, cleared: true},
		"a descheduler has just evicted it": {node: "node1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			vmi := g.running()
			e := &Evacuations{Client: g.Cached(), Events: g.Recorder, Now: func() time.Time { return g.now }}
			fakecluster.Change(t, g.Cluster, vmi, func(vmi *instance) { vmi.Status.EvacuationNodeName, vmi.Status.NodeName = "node1", tt.node })
			if tt.cordon {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
				fakecluster.Change(t, g.Cluster, node, func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
				})
			}
			if tt.failed {
				m := &migration{ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: "failed", CreationTimestamp: metav1.NewTime(g.now),
					Annotations: map[string]string{kubevirt.EvacuationMigrationAnnotation: "node1"},
				}}
				m.Spec.VMIName, m.Status.Phase = vmi.Name, kubevirt.MigrationFailed
				g.Add(t, m)
			}
			_, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(vmi)})
			assert.NilError(t, err)
			if got := g.vmi().Status.EvacuationNodeName; (got == "") != tt.cleared {
				t.Errorf("evacuationNodeName %q", got)
			}
			if tt.cleared && !strings.Contains(g.Events(), "EvacuationEnded") {
				t.Error("no event")
			}
		})
	}
}

// TestDrain: a taint of its node has an instance migrate that says so, as soon as it can.
func TestDrain(t *testing.T) {
	g := newRig(t)
	vmi := g.running()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	fakecluster.Change(t, g.Cluster, node, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{
			{Key: "kubevirt.io/drain", Effect: corev1.TaintEffectNoExecute}, {Key: "example.com/away", Effect: corev1.TaintEffectNoSchedule},
		}
	})
	kv := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "nodevirt", Name: config.Name}}
	g.Add(t, kv)
	e := &Evacuations{Client: g.Cached(), Events: g.Recorder, Now: func() time.Time { return g.now }, Config: config.Source{Namespace: kv.Namespace, Reader: g.Client}}
	drain := func(migrations int, again time.Duration) {
		t.Helper()
		result, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(vmi)})
		assert.NilError(t, err)
		assert.Equal(t, result.RequeueAfter, again)
		assert.Equal(t, len(g.migrations()), migrations)
	}
	strategy := func(s kubevirt.EvictionStrategy) {
		fakecluster.Change(t, g.Cluster, vmi, func(vmi *instance) { vmi.Spec.EvictionStrategy = &s })
	}
	strategy(kubevirt.EvictionStrategyLiveMigrate)
	drain(0, 0)
	assert.Equal(t, len(e.ofNode(t.Context(), node)), 0)
	fakecluster.Change(t, g.Cluster, kv, func(kv *kubevirt.KubeVirt) {
		kv.Spec.Configuration.MigrationConfiguration = &kubevirt.MigrationConfiguration{NodeDrainTaintKey: new("example.com/away")}
	})
	assert.DeepEqual(t, e.ofNode(t.Context(), node), []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(vmi)}})
	strategy(kubevirt.EvictionStrategyExternal)
	drain(0, 0)
	strategy(kubevirt.EvictionStrategyLiveMigrateIfPossible)
	able := g.vmi().Status.Conditions
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *instance) { vmi.Status.Conditions = nil })
	drain(0, shortestWait)
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *instance) { vmi.Status.Conditions = able })
	drain(1, 0)
	drain(1, 0)
	m := g.migrations()[0]
	assert.Equal(t, *m.Spec.Priority, kubevirt.PrioritySystemCritical)
	assert.Equal(t, m.Annotations[kubevirt.EvacuationMigrationAnnotation], "node1")
}

// TestUpdates: an instance that requires a migration gets one, where such instances migrate by themselves.
func TestUpdates(t *testing.T) {
	g := newRig(t)
	vmi := g.running()
	e := &Evacuations{Client: g.Cached(), Events: g.Recorder, Now: func() time.Time { return g.now }}
	update := func(want int) {
		t.Helper()
		if _, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(vmi)}); err != nil {
			t.Fatal(err)
		}
		if all := g.migrations(); len(all) != want {
			t.Fatalf("%d migrations, want %d", len(all), want)
		}
	}
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *instance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceCondition{
			Type: kubevirt.VirtualMachineInstanceMigrationRequired, Status: corev1.ConditionTrue,
		})
	})
	update(0)
	lan := kubevirt.Network{Name: "lan", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "two"}}}
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *instance) { vmi.Spec.Networks = append(vmi.Spec.Networks, lan) })
	on := func(definition string) {
		t.Helper()
		fakecluster.Change(t, g.Cluster, g.source(), func(p *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, pod.AnnotationNetworks, `[{"name":"`+definition+`","interface":"net1"}]`)
		})
	}
	on("two") // the condition is an old one
	object := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "nodevirt", Name: config.Name}}
	object.Spec.WorkloadUpdateStrategy.WorkloadUpdateMethods = []kubevirt.WorkloadUpdateMethod{kubevirt.WorkloadUpdateMethodLiveMigrate}
	g.Add(t, object)
	e.Config = config.Source{Namespace: "nodevirt", Reader: g.Client}
	update(0)
	on("one")
	update(1)
	update(1)
	m := g.migrations()[0]
	if _, is := m.Annotations[kubevirt.WorkloadUpdateMigrationAnnotation]; !is || *m.Spec.Priority != kubevirt.PrioritySystemMaintenance {
		t.Errorf("%+v", m)
	}
}

// TestBacklog: the wait doubles with each failure in a row.
func TestBacklog(t *testing.T) {
	now := time.Now()
	failed := func(ago time.Duration) migration {
		end := metav1.NewTime(now.Add(-ago))
		m := migration{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kubevirt.EvacuationMigrationAnnotation: "node1"}}}
		m.Status.Phase, m.Status.MigrationState = kubevirt.MigrationFailed, &state{EndTimestamp: &end}
		return m
	}
	done := failed(2 * time.Minute)
	done.Status.Phase = kubevirt.MigrationSucceeded
	for name, tt := range map[string]struct {
		all  []migration
		busy bool
		wait time.Duration
	}{
		"none":           {},
		"under way":      {all: []migration{{}}, busy: true},
		"one failed":     {all: []migration{failed(5 * time.Second)}, wait: 15 * time.Second},
		"three failed":   {all: []migration{failed(time.Hour), failed(time.Minute), failed(0)}, wait: 80 * time.Second},
		"long ago":       {all: []migration{failed(time.Hour)}},
		"before success": {all: []migration{failed(time.Hour), failed(3 * time.Minute), done, failed(time.Second)}, wait: 19 * time.Second},
	} {
		if busy, wait := backlog(tt.all, now); busy != tt.busy || wait != tt.wait {
			t.Errorf("%s: busy %t, wait %s; want %t, %s", name, busy, wait, tt.busy, tt.wait)
		}
	}
}
