package controller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller"
)

// exporting starts a controller that knows an image for exports.
func exporting(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.stop()
	w.startWith(controller.Options{StubImage: "registry.example.com/any:1", ExportImage: "registry.example.com/any:1"})
	return w
}

// export makes an export.
func (w *world) export(name string, of client.Object, group, kind string, change ...func(*exportapi.VirtualMachineExportSpec)) *exportapi.VirtualMachineExport {
	w.Helper()
	e := &exportapi.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	e.Spec.Source = corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: of.GetName()}
	for _, c := range change {
		c(&e.Spec)
	}
	if err := w.Create(w.Context(), e); err != nil {
		w.Fatal(err)
	}
	return e
}

// exporter returns the pod to which virtctl forwards a port: that of the export's Service, once it
// may be scheduled.
func (w *world) exporter(name string) *corev1.Pod {
	w.Helper()
	var found *corev1.Pod
	until(w, new(exportapi.VirtualMachineExport), name, "a pod", func(e *exportapi.VirtualMachineExport) bool {
		if e.Status == nil || e.Status.ServiceName == "" {
			return false
		}
		service := new(corev1.Service)
		if err := w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: e.Status.ServiceName}, service); err != nil {
			w.Fatal(err)
		}
		var pods corev1.PodList
		if err := w.List(w.Context(), &pods, inNamespace, client.MatchingLabels(service.Spec.Selector)); err != nil {
			w.Fatal(err)
		}
		if len(pods.Items) != 1 || len(pods.Items[0].Spec.SchedulingGates) > 0 {
			return false
		}
		found = &pods.Items[0]
		i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == 443 })
		if i < 0 || service.Spec.Ports[i].TargetPort.IntVal != found.Spec.Containers[0].Ports[0].ContainerPort {
			w.Errorf("port 443 of the service: %+v", service.Spec.Ports)
		}
		return true
	})
	return found
}

// exported waits until an export is ready, which the test makes its pod.
func (w *world) exported(name string) *exportapi.VirtualMachineExport {
	w.Helper()
	p := w.exporter(name)
	w.change(p, true, func() {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	return until(w, new(exportapi.VirtualMachineExport), name, "readiness", func(e *exportapi.VirtualMachineExport) bool {
		return e.Status.Phase == exportapi.Ready && e.Status.Links != nil && e.Status.Links.Internal != nil
	})
}

// TestExport: a VM's disks are exported until it runs. The API server serves exports in both
// versions.
func TestExport(t *testing.T) {
	w := exporting(t)
	w.node("export")
	w.boundPVC("export", nil)
	vm := w.vm("export", kubevirt.RunStrategyHalted)
	w.change(vm, false, func() { onPVC(&vm.Spec.Template.Spec, "export") })
	w.export("export", vm, "kubevirt.io", "VirtualMachine")
	e := w.exported("export")
	links := e.Status.Links.Internal
	if v := links.Volumes; len(v) != 1 || v[0].Name != "export" || len(v[0].Formats) != 2 || v[0].Formats[1].Url != "https://virt-export-export.default.svc/volumes/export/disk.img.gz" {
		t.Errorf("volumes %+v", v)
	}
	if len(links.Manifests) != 2 || !strings.HasPrefix(links.Cert, "-----BEGIN CERTIFICATE") || *e.Status.VirtualMachineName != "export" {
		t.Errorf("links %+v", links)
	}
	token := new(corev1.Secret)
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: *e.Status.TokenSecretRef}, token); err != nil || len(token.Data["token"]) == 0 {
		t.Errorf("token %v, %v", token, err)
	}
	p := w.exporter("export")
	for _, v := range p.Spec.Volumes {
		if v.Secret == nil {
			continue
		}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v.Secret.SecretName}, new(corev1.Secret)); err != nil {
			t.Error(err)
		}
	}
	older := new(unstructured.Unstructured)
	older.SetAPIVersion("export.kubevirt.io/v1beta1")
	older.SetKind("VirtualMachineExport")
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(e), older); err != nil {
		t.Error(err)
	}
	w.change(vm, false, func() { vm.Spec.RunStrategy = new(kubevirt.RunStrategyAlways) })
	until(w, e, "export", "a pause", func(e *exportapi.VirtualMachineExport) bool {
		return e.Status.Phase == exportapi.Pending && e.Status.Links == nil &&
			slices.ContainsFunc(e.Status.Conditions, func(c exportapi.Condition) bool { return c.Type == exportapi.ConditionReady && c.Reason == "InUse" })
	})
	untilGone(w, p, p.Name)
	if err := w.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	untilGone(w, e, "export")
}

// TestExportOfPVC: a PVC is exported for a time, with a token of its user's.
func TestExportOfPVC(t *testing.T) {
	w := exporting(t)
	pvc := w.boundPVC("export-pvc", nil)
	name := "secret-of-export"
	w.export("export-pvc", pvc, "", "PersistentVolumeClaim", func(s *exportapi.VirtualMachineExportSpec) {
		s.TokenSecretRef, s.TTLDuration = &name, &metav1.Duration{Duration: 15 * time.Second}
	})
	e := w.exported("export-pvc")
	if f := e.Status.Links.Internal.Volumes[0].Formats; f[0].Format != exportapi.Dir || f[1].Format != exportapi.ArchiveGz || *e.Status.TokenSecretRef != name {
		t.Errorf("status %+v", e.Status)
	}
	p := w.exporter("export-pvc")
	untilGone(w, e, "export-pvc")
	untilGone(w, p, p.Name)
}
