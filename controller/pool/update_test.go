package pool

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/pool/v1beta1"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const revisionLabel = kubevirt.VirtualMachinePoolRevisionName

// hostname changes what instances are made of.
func hostname(name string) func(*vmPool) {
	return func(pool *vmPool) { pool.Spec.VirtualMachineTemplate.Spec.Template.Spec.Hostname = name }
}

// revisions returns the names of the ControllerRevisions.
func (g *rig) revisions() []string {
	g.t.Helper()
	var list appsv1.ControllerRevisionList
	if err := g.List(g.t.Context(), &list); err != nil {
		g.t.Fatal(err)
	}
	var names []string
	for _, one := range list.Items {
		names = append(names, one.Name)
	}
	return names
}

// TestUpdateOfVMs: a change of VMs alone reaches them and leaves their instances alone.
func TestUpdateOfVMs(t *testing.T) {
	g := newRig(t)
	g.add(2)
	g.reconcile()
	g.run()
	first := g.vm("web-0").Labels[revisionLabel]
	g.change("web-0", func(vm *kubevirt.VirtualMachine) { vm.Labels["own"] = "yes" })
	g.edit(func(pool *vmPool) {
		pool.Spec.VirtualMachineTemplate.ObjectMeta.Labels["tier"] = "front"
		pool.Spec.VirtualMachineTemplate.ObjectMeta.Annotations = map[string]string{"note": "1"}
	})
	g.Writes()
	g.reconcile()
	g.expect("create ControllerRevision, patch VirtualMachine, patch VirtualMachine, patch status of VirtualMachinePool")
	vm := g.vm("web-0")
	if vm.Labels["tier"] != "front" || vm.Labels["own"] != "yes" || vm.Annotations["note"] != "1" || vm.Labels[revisionLabel] == first {
		t.Errorf("%+v", vm.ObjectMeta)
	}
	if got := vm.Spec.Template.ObjectMeta.Labels[revisionLabel]; got != first {
		t.Errorf("instances of revision %s, not %s", got, first)
	}
	g.reconcile()
	if got := g.running(); got != "web-0 web-1" {
		t.Errorf("running: %s", got)
	}
	// What the template no longer has goes, and what its user added stays.
	g.edit(func(pool *vmPool) {
		delete(pool.Spec.VirtualMachineTemplate.ObjectMeta.Labels, "tier")
		pool.Spec.VirtualMachineTemplate.ObjectMeta.Annotations = nil
	})
	g.reconcile()
	vm = g.vm("web-0")
	if _, has := vm.Labels["tier"]; has || vm.Labels["own"] != "yes" || len(vm.Annotations) > 0 || vm.Labels["app"] != "web" {
		t.Errorf("%+v", vm.ObjectMeta)
	}
	if got := g.revisions(); len(got) != 1 || got[0] != first { // the same content as at first
		t.Errorf("revisions %s, want %s", got, first)
	}
}

// TestUpdateOfInstances: a change of the instances' template replaces them, as far as
// enough stay available.
func TestUpdateOfInstances(t *testing.T) {
	g := newRig(t)
	g.add(3, func(pool *vmPool) {
		pool.Spec.MaxUnavailable = new(intstr.FromInt32(1))
		pool.Spec.UpdateStrategy = &api.VirtualMachinePoolUpdateStrategy{Proactive: &api.VirtualMachinePoolProactiveUpdateStrategy{
			SelectionPolicy: &api.VirtualMachinePoolSelectionPolicy{SortPolicy: new(api.VirtualMachinePoolSortPolicyDescendingOrder)},
		}}
	})
	g.reconcile()
	g.run()
	g.edit(hostname("other"))
	for _, want := range []string{"web-0 web-1", "web-0 web-2", "web-1 web-2"} {
		g.reconcile()
		if got := g.running(); got != want {
			t.Errorf("running: %s, want %s", got, want)
		}
		g.reconcile() // there is one unavailable already
		if got := g.running(); got != want {
			t.Errorf("running: %s, want %s", got, want)
		}
		g.run()
	}
	g.Writes()
	g.reconcile()
	g.expect("")
	if got := g.vm("web-1").Spec.Template.Spec.Hostname; got != "other" {
		t.Errorf("host name %q", got)
	}
	if got := g.revisions(); len(got) != 1 {
		t.Errorf("revisions %s", got)
	}
	// An instance that is not ready costs none of them: a bad update can be mended.
	fakecluster.Change(t, g.Cluster, g.vmi("web-0"), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.Conditions[0].Status = corev1.ConditionFalse
	})
	g.edit(hostname("third"))
	g.reconcile()
	if got := g.running(); got != "web-1 web-2" {
		t.Errorf("running: %s", got)
	}
}

// TestUpdateStrategies: which of VMs and instances a strategy updates.
func TestUpdateStrategies(t *testing.T) {
	selecting := func(value string) *api.VirtualMachinePoolUpdateStrategy {
		return &api.VirtualMachinePoolUpdateStrategy{Proactive: &api.VirtualMachinePoolProactiveUpdateStrategy{
			SelectionPolicy: &api.VirtualMachinePoolSelectionPolicy{Selectors: &api.VirtualMachinePoolSelectors{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"of-instances": value}},
			}},
		}}
	}
	for name, c := range map[string]struct {
		strategy       *api.VirtualMachinePoolUpdateStrategy
		updated, ended bool
	}{
		"none":          {nil, true, true},
		"empty":         {&api.VirtualMachinePoolUpdateStrategy{}, true, true},
		"unmanaged":     {&api.VirtualMachinePoolUpdateStrategy{Unmanaged: &api.VirtualMachinePoolUnmanagedStrategy{}}, false, false},
		"opportunistic": {&api.VirtualMachinePoolUpdateStrategy{Opportunistic: &api.VirtualMachineOpportunisticUpdateStrategy{}}, true, false},
		"selected":      {selecting("yes"), true, true},
		"not selected":  {selecting("no"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.add(1, func(pool *vmPool) {
				pool.Spec.UpdateStrategy = c.strategy
				pool.Spec.VirtualMachineTemplate.Spec.Template.ObjectMeta.Labels = map[string]string{"of-instances": "yes"}
			})
			g.reconcile()
			g.run()
			g.edit(func(pool *vmPool) { pool.Spec.VirtualMachineTemplate.Spec.Template.ObjectMeta.Labels["new"] = "label" })
			g.reconcile()
			if got := g.vm("web-0").Spec.Template.ObjectMeta.Labels["new"] == "label"; got != c.updated {
				t.Errorf("VM updated: %t", got)
			}
			if got := g.running() == ""; got != c.ended {
				t.Errorf("instance ended: %t", got)
			}
			g.scale(2) // a new VM is made of the present template
			g.reconcile()
			if g.vm("web-1").Spec.Template.ObjectMeta.Labels["new"] != "label" {
				t.Error("a new VM of an old template")
			}
		})
	}
}

// TestReplaceByStrategy: an instance ends only if another one follows.
func TestReplaceByStrategy(t *testing.T) {
	for strategy, want := range map[kubevirt.VirtualMachineRunStrategy]string{
		kubevirt.RunStrategyAlways:         "delete VirtualMachineInstance",
		kubevirt.RunStrategyManual:         "patch status of VirtualMachine",
		kubevirt.RunStrategyRerunOnFailure: "patch status of VirtualMachine",
		kubevirt.RunStrategyOnce:           "",
		kubevirt.RunStrategyHalted:         "",
	} {
		t.Run(string(strategy), func(t *testing.T) {
			g := newRig(t)
			g.add(1, func(pool *vmPool) { pool.Spec.VirtualMachineTemplate.Spec.RunStrategy = &strategy })
			g.reconcile()
			g.run()
			g.reconcile()
			vmi := g.vmi("web-0")
			g.edit(hostname("other"))
			g.Writes()
			g.reconcile()
			writes := "create ControllerRevision, patch VirtualMachine"
			if want != "" {
				writes += ", " + want
			}
			g.expect(writes + ", delete ControllerRevision")
			if want != "patch status of VirtualMachine" {
				return
			}
			all := g.vm("web-0").Status.StateChangeRequests
			if len(all) != 2 || *all[0].UID != vmi.UID || all[1].Action != kubevirt.StartRequest {
				t.Errorf("requests %+v", all)
			}
			g.reconcile() // the VM's controller acts on them
			g.expect("")
		})
	}
	g := newRig(t)
	m := &member{vm: new(kubevirt.VirtualMachine), vmi: new(kubevirt.VirtualMachineInstance)}
	m.vm.Spec.Running, m.vm.Spec.RunStrategy = new(true), new(kubevirt.RunStrategyManual)
	if err := g.r.replaceInstance(t.Context(), new(vmPool), m); err == nil {
		t.Error("no error for two strategies")
	}
	m.vm.Spec.Running = nil
	m.vm.Status.StateChangeRequests = []kubevirt.VirtualMachineStateChangeRequest{{Action: kubevirt.StartRequest}}
	if err := g.r.replaceInstance(t.Context(), new(vmPool), m); err != nil || g.Writes() != "" {
		t.Errorf("another request: %v", err)
	}
}

// TestUpdateKeeps: a VM that its user stopped stays so, and keeps its identity.
func TestUpdateKeeps(t *testing.T) {
	g := newRig(t)
	g.add(1)
	g.reconcile()
	g.change("web-0", func(vm *kubevirt.VirtualMachine) {
		vm.Spec.RunStrategy = new(kubevirt.RunStrategyHalted)
		vm.Spec.Template.Spec.Domain.Firmware = &kubevirt.Firmware{UUID: "u", Serial: "s"}
	})
	g.edit(hostname("other"))
	g.reconcile()
	vm := g.vm("web-0")
	f := vm.Spec.Template.Spec.Domain.Firmware
	if *vm.Spec.RunStrategy != kubevirt.RunStrategyHalted || vm.Spec.Template.Spec.Hostname != "other" || f == nil || f.UUID != "u" || f.Serial != "s" {
		t.Errorf("%+v, firmware %+v", vm.Spec, f)
	}
	g.edit(func(pool *vmPool) {
		pool.Spec.VirtualMachineTemplate.Spec.RunStrategy = new(kubevirt.RunStrategyManual)
	})
	g.reconcile()
	if got := *g.vm("web-0").Spec.RunStrategy; got != kubevirt.RunStrategyManual {
		t.Errorf("strategy %s", got)
	}
}

// TestForeignRevisions: a VM's label that names another owner's revision is no reason
// to read or to delete that.
func TestForeignRevisions(t *testing.T) {
	g := newRig(t)
	g.add(1)
	g.reconcile()
	foreign := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "daemons-1"}}
	foreign.Data.Raw = []byte(`{"spec":{"virtualMachineTemplate":{"metadata":{"labels":{"own":"x"}}}}}`)
	g.Add(t, foreign)
	g.change("web-0", func(vm *kubevirt.VirtualMachine) { vm.Labels[revisionLabel], vm.Labels["own"] = "daemons-1", "yes" })
	g.reconcile()
	if !g.Exists(t, foreign) || g.vm("web-0").Labels["own"] != "yes" {
		t.Errorf("labels %v", g.vm("web-0").Labels)
	}
	// One of the pool's that cannot be read is reported.
	own := g.revisions()[slices.IndexFunc(g.revisions(), func(name string) bool { return name != "daemons-1" })]
	fakecluster.Change(t, g.Cluster, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: own}},
		func(revision *appsv1.ControllerRevision) { revision.Data.Raw = []byte(`{"spec":7}`) })
	g.edit(hostname("other"))
	if _, err := g.try(); err == nil {
		t.Error("no error")
	}
	fakecluster.Change(t, g.Cluster, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: own}},
		func(revision *appsv1.ControllerRevision) { revision.Data.Raw = []byte(`{}`) })
	g.reconcile()
	if g.vm("web-0").Spec.Template.Spec.Hostname != "other" {
		t.Error("not updated")
	}
}

// TestNames: names that a VM has for itself end in its number.
func TestNames(t *testing.T) {
	secret := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	of := func(s kubevirt.VolumeSource) kubevirt.Volume { return kubevirt.Volume{VolumeSource: s} }
	configMap := &kubevirt.ConfigMapVolumeSource{LocalObjectReference: *secret("settings")}
	pool := &vmPool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	template := &kubevirt.VirtualMachineInstanceTemplateSpec{}
	template.Spec.Volumes = []kubevirt.Volume{
		of(kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "root"}}),
		of(kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "shared"}}),
		of(kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "root"},
		}}),
		of(kubevirt.VolumeSource{ConfigMap: configMap}),
		of(kubevirt.VolumeSource{Sysprep: &kubevirt.SysprepSource{ConfigMap: secret("answers"), Secret: secret("answers")}}),
		of(kubevirt.VolumeSource{Secret: &kubevirt.SecretVolumeSource{SecretName: "keys"}}),
		of(kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitNoCloudSource{UserDataSecretRef: secret("user"), NetworkDataSecretRef: secret("net")}}),
		of(kubevirt.VolumeSource{CloudInitConfigDrive: &kubevirt.CloudInitConfigDriveSource{UserDataSecretRef: secret("user"), NetworkDataSecretRef: secret("")}}),
		of(kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "x", ImagePullSecret: "pull"}}),
	}
	pool.Spec.VirtualMachineTemplate = &api.VirtualMachineTemplateSpec{Spec: kubevirt.VirtualMachineSpec{
		Template:            template,
		DataVolumeTemplates: []kubevirt.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "root"}}},
	}}
	const always = "root-7 root-7 shared root-7 "
	for _, c := range []struct {
		given *api.VirtualMachinePoolNameGeneration
		want  string
	}{
		{nil, "settings answers|answers keys user net user  pull"},
		{&api.VirtualMachinePoolNameGeneration{AppendIndexToSecretRefs: new(false)}, "settings answers|answers keys user net user  pull"},
		{&api.VirtualMachinePoolNameGeneration{AppendIndexToConfigMapRefs: new(true)}, "settings-7 answers-7|answers keys user net user  pull"},
		{&api.VirtualMachinePoolNameGeneration{AppendIndexToSecretRefs: new(true)}, "settings answers|answers-7 keys-7 user-7 net-7 user-7  pull"},
	} {
		pool.Spec.NameGeneration = c.given
		spec := specOf(pool, 7)
		v := spec.Template.Spec.Volumes
		got := spec.DataVolumeTemplates[0].Name + " " + v[0].DataVolume.Name + " " + v[1].DataVolume.Name + " " +
			v[2].PersistentVolumeClaim.ClaimName + " " + v[3].ConfigMap.Name + " " + v[4].Sysprep.ConfigMap.Name + "|" + v[4].Sysprep.Secret.Name + " " +
			v[5].Secret.SecretName + " " + v[6].CloudInitNoCloud.UserDataSecretRef.Name + " " + v[6].CloudInitNoCloud.NetworkDataSecretRef.Name + " " +
			v[7].CloudInitConfigDrive.UserDataSecretRef.Name + " " + v[7].CloudInitConfigDrive.NetworkDataSecretRef.Name + " " + v[8].ContainerDisk.ImagePullSecret
		if diff := cmp.Diff(always+c.want, got); diff != "" {
			t.Error(diff)
		}
	}
	if configMap.Name != "settings" {
		t.Error("the template itself was changed")
	}
}
