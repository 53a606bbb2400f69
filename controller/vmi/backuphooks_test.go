package vmi

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestBackupHooks: the pods of running instances get and lose the hooks of backups, as the KubeVirt object says, and the
// instance, whose word counts. Hooks of the instance's author stay.
func TestBackupHooks(t *testing.T) {
	const key, command = config.AnnotationSkipBackupHooks, "pre.hook.backup.velero.io/command"
	g := newRig(t)
	g.wire(func(o *Options) { o.Config = config.Source{Namespace: "nodevirt-system", Reader: g.Client} })
	object := &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "nodevirt-system", Name: config.Name}}
	g.Add(t, object)
	g.started()
	want := func(want int) {
		t.Helper()
		g.reconcile()
		has := 0
		for k := range g.onePod().Annotations {
			if k == command || k == pod.AnnotationBackupHook || k == "post.hook.backup.velero.io/command" {
				has++
			}
		}
		if has != want {
			t.Errorf("the pod has %d of the hooks' annotations, want %d", has, want)
		}
	}
	want(3)
	fakecluster.Change(t, g.Cluster, object, func(k *kubevirt.KubeVirt) { metav1.SetMetaDataAnnotation(&k.ObjectMeta, key, "true") })
	want(0)
	fakecluster.Change(t, g.Cluster, g.vmi(), func(v *kubevirt.VirtualMachineInstance) { metav1.SetMetaDataAnnotation(&v.ObjectMeta, key, "false") })
	want(3)
	g.Writes()
	want(3)
	g.expect("")
	fakecluster.Change(t, g.Cluster, g.vmi(), func(v *kubevirt.VirtualMachineInstance) { metav1.SetMetaDataAnnotation(&v.ObjectMeta, key, "1") })
	want(0)

	g = newRig(t)
	g.add(func(v *kubevirt.VirtualMachineInstance) {
		metav1.SetMetaDataAnnotation(&v.ObjectMeta, command, `["/sync"]`)
	})
	g.reconcile()
	want(1)
}

// TestHookChanges: instances are looked at again only if the KubeVirt object says another thing of hooks.
func TestHookChanges(t *testing.T) {
	said := func(annotations map[string]string) *kubevirt.KubeVirt {
		return &kubevirt.KubeVirt{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	skip := said(map[string]string{config.AnnotationSkipBackupHooks: "true"})
	if p := hookChanges(); p.Update(event.UpdateEvent{ObjectOld: skip, ObjectNew: skip}) || !p.Update(event.UpdateEvent{ObjectOld: said(nil), ObjectNew: skip}) ||
		p.Create(event.CreateEvent{Object: skip}) || p.Delete(event.DeleteEvent{Object: skip}) {
		t.Error("the wrong changes pass")
	}
}
