package export

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	backupapi "kubevirt.io/api/backup/v1alpha1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const namespace = "default"

// rig is a reconciler with a cluster in memory. The test is the kubelet, and the controllers of VMs
// and snapshots.
type rig struct {
	*fakecluster.Cluster
	t       *testing.T
	now     time.Time
	r       *Reconciler
	e       *vmExport
	filling map[string]datavolume.State
	support []kubevirt.SupportContainerResources
}

// fakeSnapshots has each VolumeSnapshot.
type fakeSnapshots struct{}

func (fakeSnapshots) Get(_ context.Context, _, name string) (*volumesnapshot.Snapshot, error) {
	return &volumesnapshot.Snapshot{Name: name, RestoreSize: "2Gi"}, nil
}

// fakeDataVolumes has the states of the test.
type fakeDataVolumes map[string]datavolume.State

func (f fakeDataVolumes) Get(_ context.Context, _, name string) (datavolume.State, error) {
	return f[name], nil
}

// fakePods has the pod of each instance.
type fakePods struct{}

func (fakePods) PodOf(context.Context, *kubevirt.VirtualMachineInstance, string) (*corev1.Pod, error) {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "guest", UID: "uid-guest"}, Spec: corev1.PodSpec{NodeName: "node-1"}}, nil
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, now: time.Now().Truncate(time.Second), filling: map[string]datavolume.State{}}
	g.Cluster = fakecluster.New(t, fakecluster.Options{
		Types: []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, kubevirt.AddToScheme, snapshotapi.AddToScheme, api.AddToScheme, backupapi.AddToScheme},
		Status: []client.Object{
			new(vmExport), new(backupapi.VirtualMachineBackup), new(corev1.Pod), new(corev1.PersistentVolumeClaim), new(snapshotapi.VirtualMachineSnapshot),
		},
		Index: func(b *fake.ClientBuilder) *fake.ClientBuilder {
			return b.WithIndex(new(kubevirt.VirtualMachine), index.PVC, func(o client.Object) []string {
				return names(disksOf(o.(*kubevirt.VirtualMachine).Spec.Template))
			}).WithIndex(new(kubevirt.VirtualMachineInstance), index.PVC, func(o client.Object) []string {
				return names(pod.PVCs(&o.(*kubevirt.VirtualMachineInstance).Spec))
			}).WithIndex(new(corev1.Event), "involvedObject.uid", func(o client.Object) []string {
				return []string{string(o.(*corev1.Event).InvolvedObject.UID)}
			})
		},
	})
	g.r = NewReconciler(Options{
		Client: g.Cached(), Live: g.Cached(), Events: g.Recorder, Image: "registry.example.com/controller:1",
		Support:   func() []kubevirt.SupportContainerResources { return g.support },
		Snapshots: fakeSnapshots{}, DataVolumes: fakeDataVolumes(g.filling), Pods: fakePods{},
		ProxyNamespace: proxyNamespace, Now: func() time.Time { return g.now },
	})
	return g
}

func names(uses []pod.PVC) []string {
	var all []string
	for _, use := range uses {
		all = append(all, use.Name)
	}
	return all
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// pvc adds a PVC that is bound.
func (g *rig) pvc(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	g.t.Helper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: meta(name)}
	pvc.Status.Phase = corev1.ClaimBound
	for _, c := range change {
		c(pvc)
	}
	g.Add(g.t, pvc)
	return pvc
}

func block(pvc *corev1.PersistentVolumeClaim) {
	pvc.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
}

// vm adds a VM with PVCs as disks.
func (g *rig) vm(name string, pvcs ...string) *kubevirt.VirtualMachine {
	g.t.Helper()
	vm := &kubevirt.VirtualMachine{ObjectMeta: meta(name)}
	vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	for _, pvc := range pvcs {
		v := kubevirt.Volume{Name: "of-" + pvc}
		v.PersistentVolumeClaim = &kubevirt.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc},
		}
		vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, v)
	}
	g.Add(g.t, vm)
	return vm
}

// export adds an export.
func (g *rig) export(kind, source string, change ...func(*vmExport)) {
	g.t.Helper()
	g.e = &vmExport{ObjectMeta: meta("out")}
	g.e.UID, g.e.CreationTimestamp = "uid-export", metav1.NewTime(g.now)
	group := groups()[kind]
	g.e.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: source}
	for _, c := range change {
		c(g.e)
	}
	g.Add(g.t, g.e)
}

func (g *rig) try() (ctrl.Result, error) {
	g.t.Helper()
	return g.r.Reconcile(g.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "out"}})
}

// expect reconciles, and checks the phase and the text of the condition Ready.
func (g *rig) expect(phase api.VirtualMachineExportPhase, ready string) {
	g.t.Helper()
	again, err := g.try()
	if err != nil {
		g.t.Fatal(err)
	}
	g.Exists(g.t, g.e)
	if got := g.condition(api.ConditionReady); g.e.Status.Phase != phase || !strings.Contains(got, ready) || again.RequeueAfter == 0 {
		g.t.Fatalf("phase %q, %q, again %v; want phase %q, %q", g.e.Status.Phase, got, again, phase, ready)
	}
}

// condition returns a condition's status, reason and message.
func (g *rig) condition(kind api.ConditionType) string {
	for _, c := range g.e.Status.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

// server returns the export's pod; nil for none.
func (g *rig) server() *corev1.Pod {
	g.t.Helper()
	p := &corev1.Pod{ObjectMeta: meta(podName(g.e))}
	if !g.Exists(g.t, p) {
		return nil
	}
	return p
}

// serves does what the kubelet does.
func (g *rig) serves() {
	g.t.Helper()
	p := g.server()
	if p == nil {
		g.t.Fatal("no pod")
	}
	fakecluster.Change(g.t, g.Cluster, p, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	g.expect(api.Ready, "True PodReady")
}

// urls returns the links of clients in the cluster, if there are no others.
func (g *rig) urls() string {
	g.t.Helper()
	if g.e.Status.Links == nil || g.e.Status.Links.Internal == nil || g.e.Status.Links.External != nil {
		g.t.Fatalf("links %+v", g.e.Status.Links)
	}
	return urls(g.e.Status.Links.Internal)
}

// urls returns links, one a line: volume or manifest, format and URL.
func urls(link *api.VirtualMachineExportLink) string {
	var all []string
	for _, v := range link.Volumes {
		for _, f := range v.Formats {
			all = append(all, v.Name+" "+string(f.Format)+" "+f.Url)
		}
	}
	for _, b := range link.Backups {
		for _, one := range b.Endpoints {
			all = append(all, b.Name+" "+string(one.Endpoint)+" "+one.Url)
		}
	}
	for _, m := range link.Manifests {
		all = append(all, string(m.Type)+" "+m.Url)
	}
	return strings.Join(all, "\n")
}

// secrets returns the Secrets by their names.
func (g *rig) secrets() map[string]corev1.Secret {
	g.t.Helper()
	var list corev1.SecretList
	if err := g.List(g.t.Context(), &list); err != nil {
		g.t.Fatal(err)
	}
	all := map[string]corev1.Secret{}
	for _, s := range list.Items {
		all[s.Name] = s
	}
	return all
}
