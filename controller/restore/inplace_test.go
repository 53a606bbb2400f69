package restore

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

func inPlace(s *api.VirtualMachineRestoreSpec) {
	s.VolumeRestorePolicy = new(api.VolumeRestorePolicyInPlace)
}

// temporary returns what restores in place leave: PVCs of other names, and volumes that are kept.
func (g *rig) temporary() string {
	g.t.Helper()
	var left []string
	var pvcs corev1.PersistentVolumeClaimList
	var volumes corev1.PersistentVolumeList
	if err := g.List(g.t.Context(), &pvcs); err != nil {
		g.t.Fatal(err)
	}
	if err := g.List(g.t.Context(), &volumes); err != nil {
		g.t.Fatal(err)
	}
	for _, pvc := range pvcs.Items {
		if strings.HasPrefix(pvc.Name, "restore-uid-back") {
			left = append(left, "PVC "+pvc.Name)
		}
	}
	for _, pv := range volumes.Items {
		if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain || pv.Annotations[annotationMoves] != "" {
			left = append(left, "PV "+pv.Name)
		}
	}
	return strings.Join(left, ", ")
}

// spin reconciles and binds a few times, whatever happens, and returns the last error.
func (g *rig) spin(times int) (err error) {
	g.t.Helper()
	for range times {
		_, err = g.reconcile()
		g.bind()
	}
	return err
}

// TestInPlaceOfOthers: a restore in place deletes no PVC that is not a disk of its VM alone.
func TestInPlaceOfOthers(t *testing.T) {
	other := func(g *rig) *kubevirt.VirtualMachine {
		vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}
		vm.Spec.Template = new(kubevirt.VirtualMachineInstanceTemplateSpec)
		vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{fakecluster.ClaimVolume("disk", "claim-root")}
		g.Add(g.t, vm)
		return vm
	}
	for name, one := range map[string]struct {
		target  string
		prepare func(g *rig)
		change  func(*api.VirtualMachineRestoreSpec)
		want    string
	}{
		"another target": {target: "copy", want: "replaces PVCs only of VM web"},
		"a name for the PVC": {
			target: "web", want: "replaces only the PVC that the snapshot is of",
			change: func(s *api.VirtualMachineRestoreSpec) {
				s.VolumeRestoreOverrides = []api.VolumeRestoreOverride{{VolumeName: "root", RestoreName: "claim-other"}}
			},
		},
		"another VM": {target: "web", want: "VM other uses it", prepare: func(g *rig) { other(g) }},
		"an instance": {target: "web", want: "VMI other uses it", prepare: func(g *rig) {
			vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}
			vmi.Spec = other(g).Spec.Template.Spec
			g.Add(g.t, vmi)
			if err := g.Delete(g.t.Context(), &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}); err != nil {
				g.t.Fatal(err)
			}
		}},
		"a pod": {target: "web", want: "pod backup uses it", prepare: func(g *rig) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "backup"}}
			p.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim-root"},
			}}}
			g.Add(g.t, p)
		}},
		"an export": {target: "web", want: "export out uses it", prepare: func(g *rig) {
			e := &exportapi.VirtualMachineExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "out"}}
			e.Spec.Source = corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "claim-root"}
			g.Add(g.t, e)
		}},
		"a copy that is made": {target: "web", want: "PVC fresh, which is a copy", prepare: func(g *rig) {
			pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fresh"}}
			pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "claim-root"}
			pvc.Spec.VolumeName = "missing" // it is never bound
			pvc.Status.Phase = corev1.ClaimPending
			g.Add(g.t, pvc)
		}},
		"a stranger's PVC": {target: "web", want: "neither a disk of VM web", prepare: func(g *rig) {
			if err := g.Delete(g.t.Context(), g.claim("claim-data")); err != nil {
				g.t.Fatal(err)
			}
			g.Add(g.t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claim-data"}})
		}},
		"a lost VolumeSnapshot": {target: "web", want: "VolumeSnapshot vs-root is missing", prepare: func(g *rig) {
			g.lost = map[string]bool{"vs-root": true}
		}},
		"a PVC that is not admitted": {target: "web", want: "the limit", prepare: func(g *rig) {
			g.Fail = func(verb string, o client.Object) error {
				if _, is := o.(*corev1.PersistentVolumeClaim); is && verb == "create" {
					return failure("the limit")
				}
				return nil
			}
		}},
		"a volume of another size": {target: "web", want: "asks for 2Gi", prepare: func(g *rig) { g.smaller = true }},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.vm()
			if one.prepare != nil {
				one.prepare(g)
			}
			before := map[string]*corev1.PersistentVolumeClaim{}
			for _, pvc := range []string{"claim-root", "claim-data", "claim-other", "dv"} {
				before[pvc] = g.claim(pvc)
			}
			change := one.change
			if change == nil {
				change = func(*api.VirtualMachineRestoreSpec) {}
			}
			rs := g.restore(one.target, inPlace, change)
			err := g.spin(6)
			if g.Exists(t, rs); !strings.Contains(reason(rs, api.ConditionProgressing), one.want) {
				t.Errorf("%v, condition %q, want %q", err, reason(rs, api.ConditionProgressing), one.want)
			}
			for pvc, was := range before {
				if now := g.claim(pvc); now == nil || now.UID != was.UID {
					t.Errorf("PVC %s has been deleted", pvc)
				}
			}
			g.Fail = nil
			if err := g.Delete(t.Context(), rs); err != nil {
				t.Fatal(err)
			}
			if _, err := g.reconcile(); err != nil {
				t.Fatal(err)
			}
			if left := g.temporary(); left != "" {
				t.Errorf("the deleted restore leaves %s", left)
			}
		})
	}
}

type failure string

func (e failure) Error() string { return string(e) }

// TestInPlaceKeepsTheFormer: at each moment the name has a disk, or the restored one is bound and kept, however often
// the controller ends.
func TestInPlaceKeepsTheFormer(t *testing.T) {
	const ends = 40
	for at := range ends {
		g := newRig(t)
		g.vm()
		rs := g.restore("web", inPlace)
		writes := 0
		g.Fail = func(string, client.Object) error {
			if writes++; writes == at {
				return failure("the controller ends")
			}
			return nil
		}
		for range 80 {
			_, _ = g.reconcile()
			g.bind()
			g.safe(at)
			if g.Exists(t, rs); ended(rs) {
				break
			}
		}
		if g.content("claim-root") != "vs-root" || g.content("claim-data") != "vs-data" || g.temporary() != "" || !ended(rs) {
			t.Fatalf("after a failure of write %d: contents %q %q, left over %s, %+v", at, g.content("claim-root"), g.content("claim-data"), g.temporary(), rs.Status)
		}
	}
}

// safe fails the test if a disk is lost: neither the former nor the restored one can be reached.
func (g *rig) safe(at int) {
	g.t.Helper()
	var volumes corev1.PersistentVolumeList
	if err := g.List(g.t.Context(), &volumes); err != nil {
		g.t.Fatal(err)
	}
	has := map[string]bool{}
	for _, pv := range volumes.Items {
		has[pv.Annotations["content"]] = true
	}
	for pvc, content := range map[string]string{"claim-root": "vs-root", "claim-data": "vs-data", "dv": "vs-made"} {
		c := g.claim(pvc)
		former := c != nil && c.Spec.VolumeName == "pv-"+pvc
		if !former && !has[content] {
			g.t.Fatalf("after a failure of write %d: PVC %s is %+v, and no volume has the restored disk", at, pvc, c)
		}
	}
}

// TestInPlaceGivenUp: a restore that is deleted at any step leaves a disk at each name, and nothing else.
func TestInPlaceGivenUp(t *testing.T) {
	const steps = 30
	for at := range steps {
		g := newRig(t)
		g.vm()
		rs := g.restore("web", inPlace)
		_ = g.spin(at)
		if g.Exists(t, rs); ended(rs) {
			break
		}
		snapshot := &api.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "snapshot"}}
		if at%2 == 1 {
			if err := g.Delete(t.Context(), snapshot); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Delete(t.Context(), rs); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			if _, err := g.reconcile(); err != nil {
				t.Fatal(err)
			}
			g.bind()
			g.safe(at)
			if !g.Exists(t, rs) {
				break
			}
		}
		if left := g.temporary(); left != "" || g.Exists(t, rs) {
			t.Errorf("given up after %d steps: left over %s; %+v", at, left, rs.Annotations)
		}
		for pvc, content := range map[string]string{"claim-root": "vs-root", "claim-data": "vs-data", "dv": "vs-made"} {
			c := g.claim(pvc)
			if c == nil || c.Spec.VolumeName != "pv-"+pvc && g.content(pvc) != content {
				t.Errorf("given up after %d steps: PVC %s is %+v", at, pvc, c)
			}
		}
	}
}

// TestForgedRecord: a user who writes a restore's annotation gets no volume of another namespace.
func TestForgedRecord(t *testing.T) {
	g := newRig(t)
	g.vm()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "other", Name: "secret", UID: "uid-secret"}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("9Gi")}
	g.Add(t, pv, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "secret", UID: "uid-secret"}})
	if err := g.Delete(t.Context(), g.claim("claim-root")); err != nil {
		t.Fatal(err)
	}
	rs := g.restore("web", inPlace)
	fakecluster.Change(t, g.Cluster, rs, func(rs *api.VirtualMachineRestore) {
		rs.Annotations = map[string]string{annotationReplaced: `{"claim-root":{"volume":"theirs","request":"1Gi"}}`}
	})
	_ = g.spin(8)
	if g.Exists(t, pv); pv.Spec.ClaimRef.Name != "secret" || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || len(pv.Annotations) > 0 {
		t.Errorf("PersistentVolume %+v", pv)
	}
}
