package vm

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/foreign"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// snapshotOf returns a VolumeSnapshot that is ready to use if it has a size.
func snapshotOf(name, size string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"readyToUse": size != "", "restoreSize": size}}}
	o.SetGroupVersionKind(foreign.VolumeSnapshot().GroupVersionKind)
	o.SetNamespace(web.Namespace)
	o.SetName(name)
	return o
}

// TestCopyOfUnfilled: the copy of a PVC that its own VM has not filled yet waits: it would be empty, or a part.
func TestCopyOfUnfilled(t *testing.T) {
	g := newRig(t)
	g.r.dataVolumes = fakeDataVolumes(nil)
	g.add(kubevirt.RunStrategyAlways, ofTemplate(t, `{`+storage+`, "source": {"pvc": {"name": "golden"}}}`))
	made := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
	golden := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "golden"}}
	waits := func(want string) {
		t.Helper()
		if result := g.reconcile(); result.RequeueAfter != lookForSource || g.Exists(t, made) || g.vmi() != nil {
			t.Errorf("%s: %+v, PVC %v", want, result, made.ObjectMeta)
		}
		if c := g.failure(); c == nil || !strings.Contains(c.Message, want) {
			t.Errorf("%+v; want %s", c, want)
		}
	}
	waits("PVC golden, which it copies, does not exist")
	golden.Annotations = map[string]string{pod.AnnotationOrigin: "registry.example.com/guest:1"}
	g.Add(t, golden)
	waits("is not a copy of image registry.example.com/guest:1 yet")

	fakecluster.Change(t, g.Cluster, golden, func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil })
	filler := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: web.Namespace, Name: "filler", Annotations: map[string]string{vmspec.AnnotationDiskOrigin: "root=image"},
	}}
	filler.Spec.Volumes = []kubevirt.Volume{fakecluster.ClaimVolume("root", "golden")}
	g.Add(t, filler)
	waits("is being filled by VMI filler")

	fakecluster.Change(t, g.Cluster, golden, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{pod.AnnotationFilled: "true"}
	})
	if g.reconcile(); !g.Exists(t, made) || made.Spec.DataSource.Name != "golden" {
		t.Errorf("PVC %+v", made)
	}
}

// TestCopies: without CDI, a template gets a PVC only if a storage driver can make it a copy of its source. The VM says what is
// wrong, and the PVC is made once it is right.
func TestCopies(t *testing.T) {
	claim := func(name string, mode corev1.PersistentVolumeMode, size string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name}}
		c.Spec.VolumeMode = &mode
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		return c
	}
	const at = "spec.dataVolumeTemplates[0].spec."
	for name, tt := range map[string]struct {
		spec, size string
		mode       corev1.PersistentVolumeMode
		problem    string
	}{
		"of a device":         {`{"storage": {}, "source": {"pvc": {"name": "device"}}}`, "4Gi", corev1.PersistentVolumeBlock, ""},
		"of a file system":    {`{"storage": {}, "source": {"pvc": {"name": "files"}}}`, "2156Mi", corev1.PersistentVolumeFilesystem, ""},
		"of a disk of a size": {`{` + storage + `, "source": {"pvc": {"name": "files"}}}`, "2156Mi", corev1.PersistentVolumeFilesystem, ""},
		"of a snapshot":       {`{"storage": {"volumeMode": "Block"}, "source": {"snapshot": {"name": "ready"}}}`, "3Gi", corev1.PersistentVolumeBlock, ""},
		"by dataSource":       {`{"storage": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "device"}}}`, "4Gi", corev1.PersistentVolumeBlock, ""},
		"smaller": {problem: at + "pvc.resources.requests.storage: a PVC of 2Gi is smaller than PVC files, which it copies; set 2156Mi or more",
			spec: `{"pvc": {"resources": {"requests": {"storage": "2Gi"}}}, "source": {"pvc": {"name": "files"}}}`},
		"smaller than a snapshot": {problem: at + "storage.resources.requests.storage: a PVC of 2156Mi is smaller than VolumeSnapshot ready, which it copies; set 3Gi or more",
			spec: `{` + storage + `, "source": {"snapshot": {"name": "ready"}}}`},
		"of another mode": {problem: at + "storage.volumeMode: PVC device, which it copies, is Block, and a storage driver changes no mode; set Block",
			spec: `{"storage": {"volumeMode": "Filesystem"}, "source": {"pvc": {"name": "device"}}}`},
		"of another mode by default": {problem: at + "pvc.volumeMode: PVC device, which it copies, is Block",
			spec: `{"pvc": {"resources": {"requests": {"storage": "4Gi"}}}, "source": {"pvc": {"name": "device"}}}`},
		"of no PVC": {problem: "create PVC default/data: PVC none, which it copies, does not exist: create it, or correct the template's source",
			spec: `{` + storage + `, "source": {"pvc": {"name": "none"}}}`},
		"of no snapshot": {problem: "create PVC default/data: VolumeSnapshot none, which it copies, does not exist",
			spec: `{` + storage + `, "source": {"snapshot": {"name": "none"}}}`},
		"of a snapshot that is not ready": {problem: "VolumeSnapshot early, which it copies, is not ready to use: its driver has not taken it yet",
			spec: `{` + storage + `, "source": {"snapshot": {"name": "early"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.r.dataVolumes = fakeDataVolumes(nil)
			g.Add(t, claim("device", corev1.PersistentVolumeBlock, "4Gi"), claim("files", corev1.PersistentVolumeFilesystem, "2156Mi"),
				snapshotOf("ready", "3Gi"), snapshotOf("early", ""))
			g.add(kubevirt.RunStrategyAlways, ofTemplate(t, tt.spec))
			result := g.reconcile()
			made := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
			if tt.problem != "" {
				if c := g.failure(); c == nil || !strings.Contains(c.Message, tt.problem) || result.RequeueAfter != lookForSource || g.Exists(t, made) {
					t.Errorf("%+v, %+v", c, result)
				}
				g.printable(kubevirt.VirtualMachineStatusDataVolumeError)
				return
			}
			if !g.Exists(t, made) {
				t.Fatalf("no PVC: %+v", g.failure())
			}
			mode := corev1.PersistentVolumeFilesystem
			if made.Spec.VolumeMode != nil {
				mode = *made.Spec.VolumeMode
			}
			if size := made.Spec.Resources.Requests.Storage().String(); size != tt.size || mode != tt.mode {
				t.Errorf("a PVC of %s, %s", size, mode)
			}
		})
	}
}
