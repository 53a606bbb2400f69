package export

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestPVC: a PVC gets a Service, a Secret with a token and a pod, all of which the export owns. The
// links are there as long as the pod is ready.
func TestPVC(t *testing.T) {
	g := newRig(t)
	g.pvc("data", block)
	g.export(kindPVC, "data", func(e *vmExport) {
		e.Labels = map[string]string{"app": "web", "kubevirt.io": "virt-launcher", "nodevirt.io/x": "y"}
		e.Annotations = map[string]string{"note": "1", "k8s.v1.cni.cncf.io/networks": "n", "app.kubernetes.io/name": "n"}
	})
	g.expect(api.Pending, "False PodPending")
	if got := g.condition(api.ConditionPVC); got != "True PVCBound: " {
		t.Errorf("condition %s", got)
	}
	service := &corev1.Service{ObjectMeta: meta("virt-export-out")}
	if !g.Exists(t, service) || g.e.Status.ServiceName != service.Name || !metav1.IsControlledBy(service, g.e) {
		t.Fatalf("service %+v", service)
	}
	p := g.server()
	for key, value := range service.Spec.Selector {
		if p.Labels[key] != value {
			t.Errorf("the pod has labels %v; the service selects %v", p.Labels, service.Spec.Selector)
		}
	}
	if port := service.Spec.Ports[0]; len(service.Spec.Selector) == 0 || port.Port != 443 || port.TargetPort.IntVal != p.Spec.Containers[0].Ports[0].ContainerPort {
		t.Errorf("port %+v, selector %v", port, service.Spec.Selector)
	}
	if l := p.Labels; l["app"] != "web" || l["kubevirt.io"] != "virt-exporter" || l["nodevirt.io/x"] != "" || len(p.Annotations) != 3 || p.Annotations["note"] != "1" {
		t.Errorf("labels %v, annotations %v", l, p.Annotations)
	}
	token := g.secrets()["export-token-out"]
	if !metav1.IsControlledBy(&token, g.e) || len(token.Data["token"]) < 20 || *g.e.Status.TokenSecretRef != token.Name {
		t.Errorf("token %+v, status %+v", token, g.e.Status)
	}
	if g.e.Status.Links != nil || !g.e.Status.TTLExpirationTime.Time.Equal(g.now.Add(2*time.Hour)) {
		t.Errorf("status %+v", g.e.Status)
	}
	g.serves()
	const base = "https://virt-export-out.default.svc"
	if got, want := g.urls(), "data raw "+base+"/volumes/data/disk.img\ndata gzip "+base+"/volumes/data/disk.img.gz\n"+
		"auth-header-secret "+base+"/internal/manifests/secret"; got != want {
		t.Errorf("links\n%s\nwant\n%s", got, want)
	}
	g.Writes()
	g.expect(api.Ready, "True PodReady")
	if got := g.Writes(); got != "" {
		t.Errorf("writes of an export that is ready: %s", got)
	}
	fakecluster.Change(t, g.Cluster, p, func(p *corev1.Pod) { p.Status.Conditions = nil })
	g.expect(api.Pending, "False PodPending")
	if g.e.Status.Links != nil {
		t.Errorf("links %+v of a pod that does not serve", g.e.Status.Links)
	}
}

// TestPodSpec: the pod mounts PVCs read-only, runs without privileges, and has what its server
// needs.
func TestPodSpec(t *testing.T) {
	g := newRig(t)
	g.pvc("boot", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	})
	g.pvc("data", block)
	g.vm("web", "boot", "data")
	token := "mine"
	g.export(kindVM, "web", func(e *vmExport) {
		e.Spec.TokenSecretRef = &token
		e.Spec.TTLDuration = &metav1.Duration{Duration: 30 * time.Minute}
	})
	g.expect(api.Pending, "False PodPending")
	p, all := g.server(), g.secrets()
	if len(all) != 1 || *g.e.Status.TokenSecretRef != token {
		t.Errorf("%d secrets, status %+v", len(all), g.e.Status)
	}
	if len(p.Spec.SchedulingGates) > 0 || *p.Spec.ActiveDeadlineSeconds != 1800 || *p.Spec.AutomountServiceAccountToken {
		t.Errorf("pod %+v", p.Spec)
	}
	c := p.Spec.Containers[0]
	if s := p.Spec.SecurityContext; !*s.RunAsNonRoot || *s.FSGroup != 107 || !slices.Equal(s.SupplementalGroups, []int64{6}) || s.SeccompProfile == nil {
		t.Errorf("security %+v", s)
	}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("security %+v", s)
	}
	if c.Image != "registry.example.com/controller:1" || strings.Join(c.Args, " ") != "-export-server /etc/nodevirt-export" {
		t.Errorf("container %+v", c)
	}
	for _, m := range c.VolumeMounts {
		if !m.ReadOnly {
			t.Errorf("mount %+v", m)
		}
	}
	mounted := map[string]corev1.VolumeSource{}
	for _, v := range p.Spec.Volumes {
		mounted[v.Name] = v.VolumeSource
	}
	if !mounted["volume-0"].PersistentVolumeClaim.ReadOnly || mounted["volume-1"].PersistentVolumeClaim.ReadOnly {
		t.Errorf("volumes %+v", p.Spec.Volumes)
	}
	if mounted["volume-0"].PersistentVolumeClaim.ClaimName != "boot" || mounted["volume-1"].PersistentVolumeClaim.ClaimName != "data" ||
		c.VolumeDevices[0].DevicePath != "/dev/export-volumes/volume-1" || mounted[server.TokenFolder].Secret.SecretName != token {
		t.Errorf("volumes %+v, devices %+v", p.Spec.Volumes, c.VolumeDevices)
	}
	secret, is := all[mounted[server.ServerFolder].Secret.SecretName]
	if !is || !metav1.IsControlledBy(&secret, p) {
		t.Fatalf("secrets %v", all)
	}
	var served server.Config
	if err := json.Unmarshal(secret.Data[server.FileConfig], &served); err != nil {
		t.Fatal(err)
	}
	want := []server.Volume{
		{Name: "boot", Path: "/export-volumes/volume-0", Disk: true},
		{Name: "data", Path: "/dev/export-volumes/volume-1", Block: true, Disk: true},
	}
	if served.Name != "out" || !served.Manifests || !slices.Equal(served.Volumes, want) {
		t.Errorf("config %+v", served)
	}
	g.serves()
	pair, err := tls.X509KeyPair(secret.Data[server.FileCertificate], secret.Data[server.FileKey])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(g.e.Status.Links.Internal.Cert))
	for _, name := range []string{"virt-export-out.default.svc", "virt-export-out"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Error(err)
		}
	}
	if !pair.Leaf.NotAfter.Equal(g.now.Add(30 * time.Minute)) {
		t.Errorf("the certificate ends at %s", pair.Leaf.NotAfter)
	}
}

// TestManifests: the manifests make the VM in another cluster, with the export's volumes but its persistent state,
// which is files.
func TestManifests(t *testing.T) {
	g := newRig(t)
	g.pvc("web-root")
	g.pvc("data", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	})
	vm := g.vm("web", "web-root", "data")
	fakecluster.Change(t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) {
		vm.Labels = map[string]string{"app": "web"}
		vm.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}
		template := kubevirt.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "web-root"}}
		vm.Spec.DataVolumeTemplates = []kubevirt.DataVolumeTemplateSpec{template}
		vm.Spec.Template.Spec.Domain.Devices.Filesystems = []kubevirt.Filesystem{{Name: "of-data"}}
		vm.Spec.Template.Spec.Domain.Devices.TPM = &kubevirt.TPMDevice{Persistent: new(true)}
	})
	g.pvc("state", func(c *corev1.PersistentVolumeClaim) {
		c.Labels = map[string]string{pod.StateLabel: vm.Name}
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	})
	g.export(kindVM, "web")
	g.expect(api.Pending, "PodPending")
	var text string
	for _, s := range g.secrets() {
		text += string(s.Data[server.FileManifests])
	}
	var all []struct {
		Kind     string
		Metadata metav1.ObjectMeta
		Data     map[string]string
		Spec     struct {
			DataVolumeTemplates []struct{ Spec dataVolume }
			dataVolume
		}
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 3 {
		t.Fatalf("%v: %s", err, text)
	}
	trust, made, data := all[0], all[1], all[2]
	if trust.Kind != "ConfigMap" || trust.Metadata.Name != "export-ca-cm-out" || !strings.HasPrefix(trust.Data["ca.pem"], "-----BEGIN CERTIFICATE") {
		t.Errorf("%+v", trust)
	}
	if made.Kind != kindVM || made.Metadata.Labels["app"] != "web" || made.Metadata.UID != "" || len(made.Metadata.Annotations) > 0 {
		t.Errorf("%+v", made)
	}
	root := made.Spec.DataVolumeTemplates[0].Spec
	if from := root.Source.HTTP; from.URL != "https://virt-export-out.default.svc/volumes/web-root/disk.img.gz" ||
		from.CertConfigMap != "export-ca-cm-out" || from.SecretExtraHeaders[0] != "header-secret-out" || root.ContentType != "kubevirt" {
		t.Errorf("%+v", root)
	}
	if data.Kind != "DataVolume" || data.Metadata.Name != "data" || data.Spec.ContentType != "archive" ||
		data.Spec.Source.HTTP.URL != "https://virt-export-out.default.svc/volumes/data/disk.tar.gz" || data.Spec.Storage.AccessModes[0] != "ReadWriteOnce" {
		t.Errorf("%+v", data)
	}
}

type dataVolume struct {
	Source struct {
		HTTP struct {
			URL, CertConfigMap string
			SecretExtraHeaders []string
		}
	}
	ContentType string
	Storage     struct{ AccessModes []string }
}

// TestFormats: a PVC has a disk if someone says or uses it so, and files otherwise.
func TestFormats(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*rig)
		want    string
	}{
		"files":       {func(g *rig) { g.pvc("data") }, "data dir, data tar.gz"},
		"block":       {func(g *rig) { g.pvc("data", block) }, "data raw, data gzip"},
		"of CDI":      {func(g *rig) { g.pvc("data", annotated(contentType, "kubevirt")) }, "data raw, data gzip"},
		"CDI archive": {func(g *rig) { g.pvc("data", annotated(contentType, "archive")) }, "data dir, data tar.gz"},
		"of a node":   {func(g *rig) { g.pvc("data", annotated(pod.AnnotationFilled, "yes")) }, "data raw, data gzip"},
		"of a VM":     {func(g *rig) { g.pvc("data"); g.vm("web", "data") }, "data raw, data gzip"},
		"mounted": {func(g *rig) {
			g.pvc("data")
			fakecluster.Change(g.t, g.Cluster, g.vm("web", "data"), func(vm *kubevirt.VirtualMachine) {
				vm.Spec.Template.Spec.Domain.Devices.Filesystems = []kubevirt.Filesystem{{Name: "of-data"}}
			})
		}, "data dir, data tar.gz"},
	} {
		g := newRig(t)
		tt.prepare(g)
		g.export(kindPVC, "data")
		g.expect(api.Pending, "PodPending")
		g.serves()
		var got []string
		for _, f := range g.e.Status.Links.Internal.Volumes[0].Formats {
			got = append(got, "data "+string(f.Format))
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: %q; want %q", name, got, tt.want)
		}
	}
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) { metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, key, value) }
}

// TestWaits: an export that cannot begin says why, has no pod, and begins later.
func TestWaits(t *testing.T) {
	remove := func(g *rig, o client.Object) func() {
		return func() {
			if err := g.Delete(g.t.Context(), o); err != nil {
				g.t.Fatal(err)
			}
		}
	}
	for want, prepare := range map[string]func(g *rig) (solve func()){
		"Pending False Initializing": func(g *rig) func() {
			g.export(kindPVC, "data")
			return func() { g.pvc("data") }
		},
		"Pending False PVCPending: PersistentVolumeClaim default/data is not populated": func(g *rig) func() {
			pvc := g.pvc("data", annotated(pod.AnnotationOrigin, "registry.example.com/disk"))
			g.export(kindPVC, "data")
			return func() {
				fakecluster.Change(g.t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil })
			}
		},
		"Pending False InUse: PersistentVolumeClaim default/data is in use by pod writer": func(g *rig) func() {
			g.pvc("data")
			user := user("writer", "data")
			g.Add(g.t, user)
			g.r.sources.live = fakecluster.Ended(g.r.sources.live) // pods of jobs
			g.export(kindPVC, "data")
			return func() {
				fakecluster.Change(g.t, g.Cluster, user, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
			}
		},
		"Pending False InUse: A pod may use the export's PersistentVolumeClaims (too many objects in the namespace: more than 8192": func(g *rig) func() {
			g.pvc("data")
			g.export(kindPVC, "data")
			live := g.r.sources.live
			g.r.sources.live = fakecluster.Endless(live, new(corev1.PodList))
			return func() { g.r.sources.live = live }
		},
		"Pending False VMNotFound: Virtual Machine default/web not found": func(g *rig) func() {
			g.export(kindVM, "web")
			return func() { g.pvc("data"); g.vm("web", "data") }
		},
		"Skipped False VMNoVolumes: Virtual Machine default/web has no volumes": func(g *rig) func() {
			vm := g.vm("web")
			g.export(kindVM, "web")
			return func() {
				remove(g, vm)()
				g.pvc("data")
				g.vm("web", "data")
			}
		},
		"Pending False VolumesNotPopulated: Not all volumes in the Virtual Machine default/web are populated": func(g *rig) func() {
			g.vm("web", "data")
			g.export(kindVM, "web")
			return func() { g.pvc("data") }
		},
		"Pending False VolumesNotPopulated": func(g *rig) func() {
			g.pvc("data", func(c *corev1.PersistentVolumeClaim) {
				yes := true
				c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: datavolume.Kind, Name: "data", Controller: &yes}}
			})
			g.filling["data"] = datavolume.State{Found: true, Phase: "ImportInProgress"}
			g.vm("web", "data")
			g.export(kindVM, "web")
			return func() { g.filling["data"] = datavolume.State{Found: true, Phase: "Succeeded"} }
		},
		"Pending False InUse: Virtual Machine default/web is running": func(g *rig) func() {
			g.pvc("data")
			g.vm("web", "data")
			vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: meta("web")}
			vmi.Status.Phase = kubevirt.Running
			g.Add(g.t, vmi)
			g.export(kindVM, "web")
			return remove(g, vmi)
		},
	} {
		g := newRig(t)
		solve := prepare(g)
		for range 2 {
			if again, err := g.try(); err != nil || again.RequeueAfter != pendingPoll {
				t.Fatalf("%s: %v, %v", want, again, err)
			}
		}
		g.Exists(t, g.e)
		if got := string(g.e.Status.Phase) + " " + g.condition(api.ConditionReady); !strings.HasPrefix(got, want) || g.server() != nil {
			t.Errorf("%s; want %s; pod %v", got, want, g.server())
		}
		solve()
		g.expect(api.Pending, "False PodPending")
		if g.server() == nil {
			t.Errorf("%s: no pod afterwards", want)
		}
	}
}

// user returns a pod that has a PVC.
func user(name, pvc string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name)}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc},
	}}}
	return p
}

// TestPause: the pod ends when its VM starts, and comes back afterwards. Another export reads too.
func TestPause(t *testing.T) {
	g := newRig(t)
	g.pvc("data")
	g.vm("web", "data")
	other := user("virt-export-other", "data")
	yes := true
	other.OwnerReferences = []metav1.OwnerReference{{APIVersion: "export.kubevirt.io/v1", Kind: "VirtualMachineExport", Name: "other", UID: "o", Controller: &yes}}
	g.Add(t, other)
	g.export(kindVM, "web")
	g.expect(api.Pending, "PodPending")
	g.serves()
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: meta("web")}
	g.Add(t, vmi)
	g.expect(api.Pending, "False InUse: Virtual Machine default/web is running")
	if g.server() != nil || g.e.Status.Links != nil || !strings.Contains(g.Events(), "Warning ExportPaused") {
		t.Errorf("pod %v, status %+v", g.server(), g.e.Status)
	}
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *kubevirt.VirtualMachineInstance) { vmi.Status.Phase = kubevirt.Succeeded })
	g.expect(api.Pending, "PodPending")
	g.serves()
}

// TestSnapshot: the PVCs of a snapshot are restored for the export, which owns them.
func TestSnapshot(t *testing.T) {
	g := newRig(t)
	g.export(kindSnapshot, "before")
	g.expect(api.Skipped, "False VMSnapshotNotFound")
	s := &snapshotapi.VirtualMachineSnapshot{ObjectMeta: meta("before")}
	s.Spec.Source.Name = "web"
	g.Add(t, s)
	g.expect(api.Pending, "False NotAllPVCsCreated: VirtualMachineSnapshot default/before is not ready to use")
	content, yes, name := &snapshotapi.VirtualMachineSnapshotContent{ObjectMeta: meta("content")}, true, "vs-root"
	vm := &snapshotapi.VirtualMachine{ObjectMeta: meta("web")}
	vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
	content.Spec.Source.VirtualMachine = vm
	g.Add(t, content)
	fakecluster.Change(t, g.Cluster, s, func(s *snapshotapi.VirtualMachineSnapshot) {
		s.Status = &snapshotapi.VirtualMachineSnapshotStatus{ReadyToUse: &yes, VirtualMachineSnapshotContentName: &content.Name}
	})
	g.expect(api.Skipped, "False VMSnapshotNoVolumes")
	fakecluster.Change(t, g.Cluster, content, func(c *snapshotapi.VirtualMachineSnapshotContent) {
		c.Spec.VolumeBackups = []snapshotapi.VolumeBackup{{
			VolumeName: "root", VolumeSnapshotName: &name,
			PersistentVolumeClaim: snapshotapi.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "web-root", Labels: map[string]string{"app": "web"}}},
		}}
	})
	taken := g.pvc("out-web-root")
	if _, err := g.try(); err == nil || !strings.Contains(err.Error(), "is not the export's") {
		t.Errorf("with a PVC of another: %v", err)
	}
	if g.Exists(t, g.e); !strings.Contains(g.condition(api.ConditionReady), "Unknown: PVC out-web-root exists") {
		t.Errorf("status %+v", g.e.Status)
	}
	if err := g.Delete(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	g.expect(api.Pending, "PodPending")
	if got := g.condition(api.ConditionVolumesCreated); !strings.HasPrefix(got, "False NotAllPVCsReady") {
		t.Errorf("condition %s", got)
	}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: meta("out-web-root")}
	if !g.Exists(t, pvc) || !metav1.IsControlledBy(pvc, g.e) || pvc.Spec.DataSource.Name != name || len(pvc.Labels) > 0 ||
		pvc.Spec.Resources.Requests.Storage().String() != "2Gi" {
		t.Errorf("PVC %+v", pvc)
	}
	fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
	g.serves()
	if got := g.condition(api.ConditionVolumesCreated); got != "True AllPVCsReady: " || *g.e.Status.VirtualMachineName != "web" {
		t.Errorf("condition %s, status %+v", got, g.e.Status)
	}
	if got := g.urls(); !strings.HasPrefix(got, "out-web-root raw https://virt-export-out.default.svc/volumes/out-web-root/disk.img\n") || !strings.Contains(got, "\nall https") {
		t.Errorf("links %s", got)
	}
}

// TestEnd: after its time an export and its pod are deleted.
func TestEnd(t *testing.T) {
	g := newRig(t)
	g.pvc("data")
	g.export(kindPVC, "data", func(e *vmExport) {
		e.Spec.TTLDuration = &metav1.Duration{Duration: time.Minute}
		e.Finalizers = []string{"example.com/user"}
	})
	g.expect(api.Pending, "PodPending")
	g.serves()
	g.now = g.now.Add(time.Minute)
	if again, err := g.try(); err != nil || again.RequeueAfter != 0 {
		t.Fatalf("%v, %v", again, err)
	}
	if !g.Exists(t, g.e) || g.e.DeletionTimestamp == nil || g.e.Status.Phase != api.Terminated || g.e.Status.Links != nil || g.server() != nil {
		t.Errorf("status %+v, pod %v", g.e.Status, g.server())
	}
}

// TestLostKey: a pod whose Secret could not be written never starts, and is made again.
func TestLostKey(t *testing.T) {
	g := newRig(t)
	g.pvc("data")
	token := "mine"
	g.export(kindPVC, "data", func(e *vmExport) { e.Spec.TokenSecretRef = &token })
	full := errors.New("exceeded quota")
	g.Fail = func(verb string, o client.Object) error {
		if _, is := o.(*corev1.Secret); is && verb == "create" {
			return full
		}
		return nil
	}
	if _, err := g.try(); !errors.Is(err, full) {
		t.Fatal(err)
	}
	if g.Exists(t, g.e); !strings.Contains(g.condition(api.ConditionReady), "exceeded quota") {
		t.Errorf("status %+v", g.e.Status)
	}
	former := g.server()
	if len(former.Spec.SchedulingGates) != 1 {
		t.Errorf("gates %v", former.Spec.SchedulingGates)
	}
	g.Fail = nil
	g.expect(api.Pending, "PodPending")
	p := g.server()
	if p.UID == former.UID || len(p.Spec.SchedulingGates) > 0 || len(g.secrets()) != 1 {
		t.Errorf("pod %+v", p)
	}
}

// TestTrouble: the export says why its pod does not serve; a pod that has ended is made again.
func TestTrouble(t *testing.T) {
	g := newRig(t)
	g.pvc("data")
	g.export(kindPVC, "data")
	g.expect(api.Pending, "PodPending")
	p := g.server()
	status := func(change func(*corev1.Pod)) { fakecluster.Change(t, g.Cluster, p, change) }
	status(func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node"}}
	})
	g.expect(api.Pending, "PodPending: Unschedulable: no node")
	status(func(p *corev1.Pod) {
		p.Status.Conditions = nil
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no image"}}}}
	})
	g.expect(api.Pending, "PodPending: ImagePullBackOff: no image")
	status(func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: "volume data: permission denied"}
	})
	g.expect(api.Pending, "PodPending: volume data: permission denied")
	status(func(p *corev1.Pod) {
		p.Spec.NodeName = "node"
		p.Status.ContainerStatuses = nil
	})
	event := &corev1.Event{ObjectMeta: meta("event"), Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: `secret "mine" not found`}
	event.InvolvedObject.UID = p.UID
	g.Add(t, event)
	g.expect(api.Pending, `PodPending: FailedMount: secret "mine" not found`)
	status(func(p *corev1.Pod) { p.Status.Phase, p.Status.Message = corev1.PodFailed, "evicted" })
	g.expect(api.Pending, "PodCompleted: Exporter pod default/"+p.Name+" is in phase Failed: evicted")
	if g.server() != nil || !strings.Contains(g.Events(), "Warning ExporterPodFailedOrCompleted") {
		t.Errorf("pod %v", g.server())
	}
	g.expect(api.Pending, "PodPending")
	if g.server() == nil {
		t.Error("no other pod")
	}
}

// TestRefused: what belongs to others stays, and a controller without an image says so.
func TestRefused(t *testing.T) {
	for want, prepare := range map[string]func(*rig){
		"service virt-export-out exists and is not the export's": func(g *rig) { g.Add(g.t, &corev1.Service{ObjectMeta: meta("virt-export-out")}) },
		"set -export-image": func(g *rig) { g.r.image = "" },
		"exists and is not the export's: delete it": func(g *rig) {
			g.Add(g.t, &corev1.Pod{ObjectMeta: meta(podName(&vmExport{ObjectMeta: metav1.ObjectMeta{Name: "out", UID: "uid-export"}}))})
		},
	} {
		g := newRig(t)
		g.pvc("data")
		prepare(g)
		g.export(kindPVC, "data")
		if _, err := g.try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
		if g.Exists(t, g.e); !strings.Contains(g.condition(api.ConditionReady), want) || g.e.Status.Phase != api.Pending {
			t.Errorf("status %+v; want %s", g.e.Status, want)
		}
	}
}

// TestFormerPod: the pod of an earlier export of the same name ends first.
func TestFormerPod(t *testing.T) {
	g := newRig(t)
	g.pvc("data")
	old := &corev1.Pod{ObjectMeta: meta("virt-export-out")}
	old.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&vmExport{ObjectMeta: metav1.ObjectMeta{Name: "out", UID: "earlier"}}, api.SchemeGroupVersion.WithKind("VirtualMachineExport"))}
	g.Add(t, old)
	g.export(kindPVC, "data")
	g.expect(api.Pending, "PodPending: the former pod ends")
	g.expect(api.Pending, "PodPending")
	if p := g.server(); p == nil || !metav1.IsControlledBy(p, g.e) || p.Name != old.Name {
		t.Errorf("pod %+v", p)
	}
}

// TestNames: long names stay apart, and names of Services have no dots.
func TestNames(t *testing.T) {
	long := &vmExport{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 200) + ".b", UID: "u"}}
	other := &vmExport{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 200) + ".c", UID: "v"}}
	for _, name := range []func(*vmExport) string{podName, serviceName, func(e *vmExport) string { return selector(e)[labelService] }} {
		if a, b := name(long), name(other); a == b || len(a) > 63 || strings.Contains(a, ".") {
			t.Errorf("%q, %q", a, b)
		}
	}
	if got := serviceName(&vmExport{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}}); got != "virt-export-a-b" {
		t.Error(got)
	}
}
