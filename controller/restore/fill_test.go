package restore

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

func (g *rig) Get(_ context.Context, _, name string) (datavolume.State, error) {
	for _, one := range g.filled {
		if one.Name == name {
			return datavolume.State{Served: g.cdi, Found: true}, nil
		}
	}
	return datavolume.State{Served: g.cdi}, nil
}

func (g *rig) MarkFilled(_ context.Context, _, name string, annotations map[string]string) error {
	g.marked = append(g.marked, name+" for "+annotations[annotationName])
	return nil
}

func (g *rig) CreateFilled(_ context.Context, meta metav1.ObjectMeta, _ cdi.DataVolumeSpec, _ resource.Quantity) error {
	g.filled = append(g.filled, meta)
	return nil
}

// TestDataVolume: in a cluster with CDI a restored template has a DataVolume, which takes the PVC.
func TestDataVolume(t *testing.T) {
	g := newRig(t)
	g.cdi = true
	now := g.vm()
	g.finish(g.restore("web"))
	const made = "restore-uid-back-made"
	if len(g.filled) != 1 || g.filled[0].Name != made || g.filled[0].Annotations[annotationName] != "back" || !metav1.IsControlledBy(&g.filled[0], now) {
		t.Errorf("DataVolumes %+v", g.filled)
	}
	if pvc := g.claim(made); pvc.Annotations[datavolume.AnnotationFilledFor] != made || metav1.GetControllerOf(pvc) != nil {
		t.Errorf("PVC %+v", pvc.ObjectMeta)
	}
	if pvc := g.claim("restore-uid-back-root"); !metav1.IsControlledBy(pvc, now) {
		t.Errorf("PVC of no template %+v", pvc.ObjectMeta)
	}
}

// TestKeptRevision: a VM keeps the revision of its instance type that the snapshot names.
func TestKeptRevision(t *testing.T) {
	g := newRig(t)
	now := g.vm()
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "captured"}}
	fakecluster.Change(t, g.Cluster, revision, func(r *appsv1.ControllerRevision) { r.OwnerReferences = []metav1.OwnerReference{ownedBy(now)} })
	g.finish(g.restore("web"))
	if g.Exists(t, now); now.Spec.Instancetype.RevisionName != "captured" {
		t.Errorf("revision %s", now.Spec.Instancetype.RevisionName)
	}
}

// TestOwnRevision: a VM keeps its revision if the snapshot's has the same content, and gets another otherwise.
func TestOwnRevision(t *testing.T) {
	for content, kept := range map[string]bool{`{"kind":"large"}`: true, `{"kind":"small"}`: false} {
		g := newRig(t)
		now := g.vm()
		own := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "own", OwnerReferences: []metav1.OwnerReference{ownedBy(now)},
		}}
		own.Data.Raw = []byte(content)
		g.Add(t, own)
		fakecluster.Change(t, g.Cluster, now, func(vm *kubevirt.VirtualMachine) {
			vm.Status.InstancetypeRef = &kubevirt.InstancetypeStatusRef{
				Name: "large", ControllerRevisionRef: &kubevirt.ControllerRevisionRef{Name: "own"},
			}
		})
		g.finish(g.restore("web"))
		if g.Exists(t, now); (now.Spec.Instancetype.RevisionName == "own") != kept {
			t.Errorf("own content %s: revision %s", content, now.Spec.Instancetype.RevisionName)
		}
	}
}

// TestEvents: what a restore waits for, and what is wrong, is one event each, and one status.
func TestEvents(t *testing.T) {
	for want, prepare := range map[string]func(g *rig, now *kubevirt.VirtualMachine){
		"RestoreTargetNotReady VM web must be powered off": func(g *rig, now *kubevirt.VirtualMachine) {
			g.Add(g.t, &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: now.Name}})
		},
		"VirtualMachineRestoreError VirtualMachineRestore encountered error VMSnapshot": func(g *rig, _ *kubevirt.VirtualMachine) {
			if err := g.Delete(g.t.Context(), &api.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "snapshot"}}); err != nil {
				g.t.Fatal(err)
			}
		},
		"VirtualMachineRestoreError VirtualMachineRestore encountered error spec.patches": func(g *rig, now *kubevirt.VirtualMachine) {
			content := &api.VirtualMachineSnapshotContent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "content"}}
			fakecluster.Change(g.t, g.Cluster, content, func(c *api.VirtualMachineSnapshotContent) { c.Spec.VolumeBackups = nil })
			if err := g.Delete(g.t.Context(), now); err != nil {
				g.t.Fatal(err)
			}
		},
	} {
		g := newRig(t)
		prepare(g, g.vm())
		g.restore("web", func(s *api.VirtualMachineRestoreSpec) {
			s.Patches = []string{`{"op": "remove", "path": "/spec/none"}`}
		})
		for range 2 {
			_, _ = g.reconcile()
		}
		g.Writes()
		_, _ = g.reconcile()
		if got := g.Writes(); got != "" {
			t.Errorf("%s: writes %s", want, got)
		}
		if events := g.Events(); strings.Count(events, want) != 1 {
			t.Errorf("events %s; want %s", events, want)
		}
	}
}
