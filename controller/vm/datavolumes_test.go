package vm

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// fakeDataVolumes are CDI's objects; nil stands for a cluster without CDI. The service account stranger may copy
// nothing.
type fakeDataVolumes map[string]*cdi.DataVolumeSpec

func (f fakeDataVolumes) Get(_ context.Context, _, name string) (datavolume.State, error) {
	return datavolume.State{Served: f != nil, Found: f[name] != nil}, nil
}

func (f fakeDataVolumes) Create(_ context.Context, meta metav1.ObjectMeta, spec cdi.DataVolumeSpec, account string) (cdi.DataVolumeSpec, error) {
	if account == "stranger" {
		return spec, &datavolume.DeniedError{Account: meta.Namespace + "/" + account, Reason: "insufficient permissions"}
	}
	f[meta.Name] = &spec
	return spec, nil
}

// ChangeOwners notes as another DataVolume who owns one now, of those of the VM's UID.
func (f fakeDataVolumes) ChangeOwners(
	_ context.Context, _, name string, change func([]metav1.OwnerReference) []metav1.OwnerReference,
) error {
	owner := metav1.OwnerReference{Kind: "VirtualMachine", Name: "former", UID: "uid-web", Controller: new(true)}
	if left := change([]metav1.OwnerReference{owner}); len(left) == 0 {
		f["released "+name] = new(cdi.DataVolumeSpec)
	}
	return nil
}

// ofTemplate gives a VM a volume with a template of that spec.
func ofTemplate(t *testing.T, spec string) func(*kubevirt.VirtualMachine) {
	return func(vm *kubevirt.VirtualMachine) {
		onPVC(vm)
		template := kubevirt.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
		if err := yaml.UnmarshalStrict([]byte(spec), &template.Spec); err != nil {
			t.Fatal(err)
		}
		vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{template}
	}
}

const storage = `"storage": {"resources": {"requests": {"storage": "2Gi"}}}`

// TestNotImmediate: a VM whose DataVolumes wait for its start takes PVCs that a tool has brought before.
func TestNotImmediate(t *testing.T) {
	for _, with := range []fakeDataVolumes{nil, {}} {
		g := newRig(t)
		g.r.dataVolumes = with
		g.add(kubevirt.RunStrategyHalted, ofTemplate(t, `{`+storage+`, "source": {"blank": {}}}`), func(vm *kubevirt.VirtualMachine) {
			vm.Annotations = map[string]string{kubevirt.ImmediateDataVolumeCreation: "false"}
		})
		made := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
		g.reconcile()
		if g.Exists(t, made) || with["data"] != nil {
			t.Errorf("PVC %+v, DataVolumes %v", made.ObjectMeta, with)
		}
		fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Spec.RunStrategy = new(kubevirt.RunStrategyAlways) })
		g.reconcile()
		if g.Exists(t, made) == (with != nil) || (with["data"] == nil) == (with != nil) {
			t.Errorf("PVC %+v, DataVolumes %v", made.ObjectMeta, with)
		}
	}
}

// TestPVCOfTemplate: in a cluster without CDI a template becomes a PVC, or the VM says
// that it needs CDI.
func TestPVCOfTemplate(t *testing.T) {
	for _, tt := range []struct{ spec, origin, from, want string }{
		{`{` + storage + `, "source": {"registry": {"url": "docker://registry.example.com/guest:1"}}}`, "registry.example.com/guest:1", "", ""},
		{`{` + storage + `, "source": {"blank": {}}}`, "", "", ""},
		{`{` + storage + `, "source": {"blank": {}}, "preallocation": true}`, "", "", ""},
		{`{` + storage + `, "source": {"blank": {}}, "preallocation": false}`, "", "", ""},
		{`{"pvc": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "2Gi"}}}, "source": {"pvc": {"namespace": "default", "name": "golden"}}}`,
			"", "golden", ""},
		{`{` + storage + `, "source": {"snapshot": {"name": "yesterday"}}}`, "", "yesterday", ""},
		{`{` + storage + `, "source": {"pvc": {"namespace": "other", "name": "golden"}}}`, "", "",
			"spec.dataVolumeTemplates[0].spec.source.pvc.namespace: a PVC of another namespace needs CDI"},
		{`{` + storage + `, "source": {"http": {"url": "https://example.com/x.qcow2"}}}`, "", "",
			"spec.dataVolumeTemplates[0].spec.source.http: needs CDI (Containerized Data Importer), which this cluster does not have; " +
				"install it, or use registry, blank, pvc or snapshot"},
		{`{` + storage + `, "source": {"registry": {"url": "oci-archive://x"}}}`, "", "", "source.registry.url: docker://IMAGE is copied by the node; another URL needs CDI"},
		{`{` + storage + `, "source": {"registry": {"url": "docker://x", "secretRef": "s"}}}`, "", "", "source.registry.secretRef: needs CDI"},
		{`{` + storage + `, "source": {"registry": {"url": "docker://x", "certConfigMap": "c"}}}`, "", "", "certConfigMap and imageStream: needs CDI"},
		{`{` + storage + `, "sourceRef": {"kind": "DataSource", "name": "x"}}`, "", "", "spec.sourceRef: needs CDI"},
		{`{"storage": {}, "source": {"blank": {}}}`, "", "", "spec.storage.resources.requests.storage: required"},
		{`{"pvc": {}, "source": {"pvc": {"name": "golden"}}}`, "", "", "spec.pvc.resources.requests.storage: required"},
	} {
		g := newRig(t)
		g.r.dataVolumes = fakeDataVolumes(nil)
		g.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "golden"}}, snapshotOf("yesterday", "2Gi"))
		g.add(kubevirt.RunStrategyAlways, ofTemplate(t, tt.spec))
		if tt.want != "" {
			result, err := g.try()
			if c := g.failure(); c == nil || c.Reason != "FailedDataVolumeCreate" || !strings.Contains(c.Message, tt.want) {
				t.Errorf("%s: %+v; want %s", tt.spec, c, tt.want)
			}
			if needs := strings.Contains(tt.want, "needs CDI"); needs != (err == nil) || needs && result.RequeueAfter != lookForCDI {
				t.Errorf("%s: %+v, %v", tt.spec, result, err)
			}
			g.printable(kubevirt.VirtualMachineStatusDataVolumeError)
			if g.vmi() != nil {
				t.Errorf("%s: there is an instance", tt.spec)
			}
			continue
		}
		g.reconcile()
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
		if !g.Exists(t, pvc) {
			t.Fatalf("%s: no PVC", tt.spec)
		}
		size := "2156Mi" // 95 % of which is 2 GiB
		if strings.HasPrefix(tt.spec, `{"pvc"`) {
			size = "2Gi"
		}
		if !metav1.IsControlledBy(pvc, g.vm()) || pvc.Labels[kubevirt.CreatedByLabel] != string(g.vm().UID) || pvc.Annotations[pod.AnnotationOrigin] != tt.origin ||
			len(pvc.Spec.AccessModes) != 1 || pvc.Spec.Resources.Requests.Storage().String() != size {
			t.Errorf("%s: %+v", tt.spec, pvc)
		}
		if asked := strings.Contains(tt.spec, `"preallocation": true`); pod.Preallocated(pvc) != asked {
			t.Errorf("%s: annotations %v", tt.spec, pvc.Annotations)
		}
		if from := pvc.Spec.DataSource; (from != nil) != (tt.from != "") || from != nil && from.Name != tt.from {
			t.Errorf("%s: data source %+v", tt.spec, from)
		}
		if g.vmi() == nil {
			t.Errorf("%s: no instance", tt.spec)
		}
		g.Writes()
		g.reconcile()
		if got := g.Writes(); strings.Contains(got, "PersistentVolumeClaim") {
			t.Errorf("%s: written again: %s", tt.spec, got)
		}
	}
}

// TestOverhead: the disk that a node makes on a PVC with a file system has the size that the template's storage names.
func TestOverhead(t *testing.T) {
	const mebibyte = 1 << 20
	for _, size := range []string{"256Mi", "1Gi", "10Gi", "1Ti", "1G", "1"} {
		spec := corev1.PersistentVolumeClaimSpec{}
		asked := resource.MustParse(size)
		spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: asked}
		addOverhead(&spec)
		total := spec.Resources.Requests.Storage().Value()
		if disk := total / 100 * 95 / mebibyte * mebibyte; disk < asked.Value() || disk > asked.Value()+3*mebibyte || total%mebibyte != 0 {
			t.Errorf("%s: a PVC of %d bytes has a disk of %d", size, total, disk)
		}
		block := corev1.PersistentVolumeClaimSpec{VolumeMode: new(corev1.PersistentVolumeBlock)}
		block.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: asked}
		if addOverhead(&block); !block.Resources.Requests.Storage().Equal(asked) {
			t.Errorf("%s: a device of %s", size, block.Resources.Requests.Storage())
		}
	}
}

// TestCorrectedImage: a PVC that no node has filled takes the image that its template names now; one that is filled stays.
func TestCorrectedImage(t *testing.T) {
	g := newRig(t)
	g.r.dataVolumes = fakeDataVolumes(nil)
	g.add(kubevirt.RunStrategyAlways, ofTemplate(t, `{`+storage+`, "source": {"registry": {"url": "docker://registry.example.com/gest:1"}}}`))
	g.reconcile()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
	correct := func(image, want string) {
		t.Helper()
		fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) {
			vm.Spec.DataVolumeTemplates[0].Spec.Source.Registry.URL = new("docker://" + image)
		})
		g.reconcile()
		if !g.Exists(t, pvc) || pvc.Annotations[pod.AnnotationOrigin] != want {
			t.Errorf("image %s, want %s", pvc.Annotations[pod.AnnotationOrigin], want)
		}
	}
	correct("registry.example.com/guest:1", "registry.example.com/guest:1")
	if events := g.Events(); !strings.Contains(events, "ImageChanged") {
		t.Errorf("events: %s", events)
	}
	fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.Annotations[pod.AnnotationFilled] = "true" })
	correct("registry.example.com/guest:2", "registry.example.com/guest:1")
}

// TestDataVolumeOfTemplate: in a cluster with CDI a template becomes a DataVolume.
func TestDataVolumeOfTemplate(t *testing.T) {
	g := newRig(t)
	made := fakeDataVolumes{}
	g.r.dataVolumes = made
	g.add(kubevirt.RunStrategyHalted, ofTemplate(t, `{`+storage+`, "source": {"http": {"url": "https://example.com/x.qcow2"}}}`))
	for range 2 {
		g.reconcile()
		if len(made) != 1 || made["data"].Source.HTTP == nil {
			t.Errorf("DataVolumes: %v", made)
		}
	}
	if events := g.Events(); !strings.Contains(events, "SuccessfulDataVolumeCreate Created DataVolume data") {
		t.Errorf("events: %s", events)
	}
}

// TestDataVolumeOfOtherNamespace: the VM's service account decides whether a template may copy, and the VM says that
// the source is missing.
func TestDataVolumeOfOtherNamespace(t *testing.T) {
	g := newRig(t)
	made := fakeDataVolumes{}
	g.r.dataVolumes = made
	account := func(name string) func(*kubevirt.VirtualMachine) {
		return func(vm *kubevirt.VirtualMachine) {
			vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{
				ServiceAccount: &kubevirt.ServiceAccountVolumeSource{ServiceAccountName: name},
			}})
		}
	}
	g.add(kubevirt.RunStrategyHalted, ofTemplate(t, `{`+storage+`, "source": {"pvc": {"namespace": "other", "name": "golden"}}}`), account("stranger"))
	if _, err := g.try(); err == nil {
		t.Error("the failure is not retried")
	}
	if c := g.failure(); c == nil || c.Reason != reasonDataVolume || !strings.Contains(c.Message, "insufficient permissions: let the service account default/stranger create") {
		t.Errorf("%+v", c)
	}
	if events := g.Events(); !strings.Contains(events, reasonDenied) || len(made) != 0 {
		t.Errorf("%v, events: %s", made, events)
	}
	fakecluster.Change(t, g.Cluster, g.vm(), account("friend"))
	g.reconcile()
	if events := g.Events(); made["data"] == nil || !strings.Contains(events, reasonNoSource) {
		t.Errorf("%v, events: %s", made, events)
	}
	if c := g.failure(); c != nil {
		t.Errorf("%+v", c)
	}
}
