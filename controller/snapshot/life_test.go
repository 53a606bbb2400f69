package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/datavolume"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/volumesnapshot"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

const agent = kubevirt.VirtualMachineInstanceAgentConnected

// TestOffline: a halted VM's snapshot needs no freeze, and has the VM's spec of now, and the dump of
// its memory.
func TestOffline(t *testing.T) {
	g := newRig(t)
	g.r.sources.live = fakecluster.Ended(g.r.sources.live) // of jobs
	g.vm(func(vm *kubevirt.VirtualMachine) {
		v := vm.Spec.Template.Spec.Volumes[0].DeepCopy()
		v.Name, v.PersistentVolumeClaim.ClaimName = "slow", "claim-slow"
		vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, *v, fakecluster.DumpVolume("dump", "claim-dump"))
	})
	g.claim("claim-dump", "csi")
	g.claim("claim-slow", "local") // no driver of snapshots
	g.snapshot("one")
	g.reconcile("one")
	g.is("one", api.InProgress, "Source locked and operation in progress")
	if g.lockedBy() != "one" || len(g.driver.all) != 3 {
		t.Errorf("locked by %q, %d VolumeSnapshots", g.lockedBy(), len(g.driver.all))
	}
	g.driver.take(false)
	if wait := g.reconcile("one").RequeueAfter; wait != retry {
		t.Errorf("a snapshot that is not ready is looked at again after %s", wait)
	}
	s := g.is("one", api.Succeeded, "Operation complete")
	if *s.Status.ReadyToUse || g.lockedBy() != "" {
		t.Errorf("ready %t, locked by %q", *s.Status.ReadyToUse, g.lockedBy())
	}
	g.driver.take(true)
	if wait := g.reconcile("one").RequeueAfter; wait != 0 {
		t.Errorf("a ready snapshot is looked at again after %s", wait)
	}
	s = g.is("one", api.Succeeded, "Operation complete")
	volumes := s.Status.SnapshotVolumes
	if !*s.Status.ReadyToUse || fmt.Sprint(volumes.IncludedVolumes, volumes.ExcludedVolumes) != "[root data dump] [disk slow]" ||
		fmt.Sprint(indicationsOf(s)) != "[PartialSnapshot]" {
		t.Errorf("status %+v, volumes %+v", s.Status, volumes)
	}
	content := g.content(s)
	vm, claim := content.Spec.Source.VirtualMachine, content.Spec.VolumeBackups[0].PersistentVolumeClaim
	if vm.Spec.Template.Spec.Hostname != "now" || vm.Labels["app"] != "web" || claim.Labels["of"] != "claim-root" || len(claim.Annotations) > 0 {
		t.Errorf("content has %+v, PVC %+v", vm, claim.ObjectMeta)
	}
	if said := g.node.said(); said != "" {
		t.Errorf("orders of a VM that does not run: %s", said)
	}
	for _, meta := range g.driver.metas {
		if len(meta.OwnerReferences) != 1 || meta.OwnerReferences[0].UID != content.UID {
			t.Errorf("a VolumeSnapshot has the owners %+v", meta.OwnerReferences)
		}
	}
}

// TestState: the snapshot has the PVC with the VM's UEFI variables and TPM, once the VM has run.
func TestState(t *testing.T) {
	g := newRig(t)
	vm := g.vm(func(vm *kubevirt.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Devices.TPM = &kubevirt.TPMDevice{Persistent: new(true)}
	})
	for _, name := range []string{"before", "after"} {
		want := "[root data]"
		if name == "after" {
			want = "[root data persistent-state-for-web]"
			g.claim("kept", "csi")
			pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}}
			fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) {
				c.Labels = map[string]string{pod.StateLabel: "web"}
				c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
			})
		}
		g.snapshot(name)
		g.reconcile(name)
		g.driver.take(true)
		g.reconcile(name)
		if s := g.is(name, api.Succeeded, "Operation complete"); fmt.Sprint(s.Status.SnapshotVolumes.IncludedVolumes) != want {
			t.Errorf("%s the VM has state: volumes %+v, want %s", name, s.Status.SnapshotVolumes, want)
		}
	}
}

// TestNoPVCs: a running VM without PVCs is not frozen, and its snapshot is one of a running VM.
func TestNoPVCs(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Volumes = nil }), agent)
	g.snapshot("one")
	for range 3 {
		g.reconcile("one")
	}
	s := g.is("one", api.Succeeded, "Operation complete")
	if fmt.Sprint(indicationsOf(s)) != "[GuestAgent Online]" || !*s.Status.ReadyToUse || g.node.said() != "" {
		t.Errorf("status %+v, orders %s", s.Status, g.node.said())
	}
}

// TestFreeze: one freeze holds for all PVCs, is extended while drivers need it, and ends at once
// when the last of them is done.
func TestFreeze(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(), agent)
	g.snapshot("one")
	if wait := g.reconcile("one").RequeueAfter; wait != frozenPoll {
		t.Errorf("a frozen guest is looked at after %s", wait)
	}
	if said := g.node.said(); said != "freeze 10s" || len(g.driver.all) != 2 {
		t.Errorf("orders %q, %d VolumeSnapshots", said, len(g.driver.all))
	}
	g.driver.take(true, "root")
	for range 6 {
		g.now = g.now.Add(4 * time.Second)
		g.reconcile("one")
	}
	if said := g.node.said(); said != strings.TrimSuffix(strings.Repeat("keep-frozen 10s, ", 6), ", ") || !g.node.frozen() {
		t.Errorf("orders %q", said)
	}
	g.driver.take(true)
	g.reconcile("one")
	s := g.is("one", api.Succeeded, "Operation complete")
	if said := g.node.said(); said != "keep-frozen 10s, unfreeze" || g.node.frozen() {
		t.Errorf("orders %q", said)
	}
	if fmt.Sprint(indicationsOf(s)) != "[GuestAgent Online]" || s.Status.Error != nil {
		t.Errorf("status %+v", s.Status)
	}
	if host := g.content(s).Spec.Source.VirtualMachine.Spec.Template.Spec.Hostname; host != "started" {
		t.Errorf("the snapshot of a running VM has the host name %q, want that with which it was started", host)
	}
}

// TestNotFrozen: a guest that cannot be frozen has a snapshot nevertheless, which says so.
func TestNotFrozen(t *testing.T) {
	for want, conditions := range map[string][]kubevirt.VirtualMachineInstanceConditionType{
		"[NoGuestAgent Online]": nil, "[Paused Online]": {agent, kubevirt.VirtualMachineInstancePaused},
	} {
		g := newRig(t)
		g.runs(g.vm(), conditions...)
		g.snapshot("one")
		g.reconcile("one")
		g.driver.take(true)
		g.reconcile("one")
		s := g.is("one", api.Succeeded, "")
		if fmt.Sprint(indicationsOf(s)) != want || g.node.said() != "" {
			t.Errorf("indications %v, want %s", indicationsOf(s), want)
		}
	}
}

// TestControllerDies: a controller that continues in time relies on the freeze of the one
// before. After a pause the guest has thawed: all VolumeSnapshots are taken again.
func TestControllerDies(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(), agent)
	g.snapshot("one")
	g.driver.fail = errors.New("the API server is away")
	if _, err := g.r.Reconcile(t.Context(), request("one")); err == nil || len(g.driver.all) != 1 {
		t.Fatalf("%v, %d VolumeSnapshots", err, len(g.driver.all))
	}
	g.driver.fail = nil
	g.restart()
	g.node.said()
	g.now = g.now.Add(5 * time.Second)
	g.reconcile("one")
	if said := g.node.said(); said != "keep-frozen 10s" || len(g.driver.all) != 2 {
		t.Errorf("orders %q, %d VolumeSnapshots", said, len(g.driver.all))
	}

	g.driver.take(true, "root")
	g.restart()
	g.now = g.now.Add(time.Minute)
	g.reconcile("one")
	if len(g.driver.all) != 0 {
		t.Errorf("VolumeSnapshots of different moments: %v", g.driver.all)
	}
	g.is("one", api.InProgress, inProgress)
	g.node.said()
	g.reconcile("one")
	if said := g.node.said(); said != "freeze 10s" || len(g.driver.all) != 2 {
		t.Errorf("orders %q, %d VolumeSnapshots", said, len(g.driver.all))
	}
	g.driver.take(true)
	g.reconcile("one")
	if s := g.is("one", api.Succeeded, ""); fmt.Sprint(indicationsOf(s)) != "[GuestAgent Online]" || s.Status.Error != nil {
		t.Errorf("status %+v", s.Status)
	}
}

// TestFreezeLimited: a guest that thaws by itself twice has a snapshot that says so.
func TestFreezeLimited(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(), agent)
	g.snapshot("one")
	for range 2 {
		g.reconcile("one")
		g.node.until = time.Time{}
		g.now = g.now.Add(renewal)
		g.reconcile("one")
	}
	g.driver.take(true)
	g.reconcile("one")
	if s := g.is("one", api.Succeeded, ""); !indicated(s, api.VMSnapshotQuiesceTimeoutIndication) {
		t.Errorf("indications %v", indicationsOf(s))
	}
}

// TestFreezeFails: no VolumeSnapshot is taken of a guest that should be frozen and is not.
func TestFreezeFails(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(), agent)
	g.snapshot("one")
	g.node.fail = errors.New("no route to host")
	g.reconcile("one")
	s := g.is("one", api.InProgress, inProgress)
	if len(g.driver.all) > 0 || !strings.Contains(*s.Status.Error.Message, "no route to host") {
		t.Errorf("%d VolumeSnapshots, error %+v", len(g.driver.all), s.Status.Error)
	}
	if said := g.Events(); !strings.Contains(said, "FreezeError Failed freezing vmi: ") {
		t.Errorf("events: %s", said)
	}
	g.node.fail = nil
	g.reconcile("one")
	g.driver.take(true)
	g.reconcile("one")
	g.is("one", api.Succeeded, "")
}

// TestDenied: a snapshot whose VolumeSnapshots are refused is in progress, and says why.
func TestDenied(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(), agent)
	g.snapshot("one")
	g.driver.fail = errors.New("denied the request")
	for range 2 {
		if _, err := g.r.Reconcile(t.Context(), request("one")); !errors.Is(err, g.driver.fail) {
			t.Fatalf("error %v, want that of the driver", err)
		}
	}
	s := g.is("one", api.InProgress, inProgress)
	if c := find(s, api.ConditionProgressing); c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, "denied the request") {
		t.Errorf("condition %+v", c)
	}
	if !strings.Contains(*s.Status.Error.Message, "denied the request") || fmt.Sprint(indicationsOf(s)) != "[GuestAgent Online]" {
		t.Errorf("status %+v", s.Status)
	}
	g.driver.fail = nil
	g.reconcile("one")
	g.driver.take(true)
	g.reconcile("one")
	g.is("one", api.Succeeded, "")
}

// TestDriverFails: a snapshot says that a driver could not take one of its VolumeSnapshots, until the driver could.
func TestDriverFails(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.snapshot("one")
	g.reconcile("one")
	for name, s := range g.driver.all {
		s.Error = "the pool is full"
		g.driver.all[name] = s
	}
	g.reconcile("one")
	if s := g.is("one", api.InProgress, "In error state"); !strings.Contains(*s.Status.Error.Message, "the pool is full") {
		t.Errorf("status %+v", s.Status)
	}
	for name, s := range g.driver.all {
		s.Error = ""
		g.driver.all[name] = s
	}
	g.driver.take(true)
	g.reconcile("one")
	g.is("one", api.Succeeded, "Operation complete")
}

// TestDeadline: a snapshot that takes too long fails. The guest is thawed, the VM unlocked, and no
// content remains.
func TestDeadline(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(), agent)
	g.snapshot("one", func(s *vmSnapshot) { s.Spec.FailureDeadline = &metav1.Duration{Duration: 8 * time.Second} })
	g.reconcile("one")
	g.now = g.now.Add(9 * time.Second)
	g.node.said()
	g.reconcile("one")
	s := g.is("one", api.Failed, "Operation failed")
	if c := find(s, api.ConditionFailure); c == nil || c.Reason != "snapshot deadline exceeded" {
		t.Errorf("condition %+v", c)
	}
	if said := g.node.said(); said != "unfreeze" || g.content(s) != nil || g.lockedBy() != "" || *s.Status.ReadyToUse {
		t.Errorf("orders %q, content %v, locked by %q, status %+v", said, g.content(s), g.lockedBy(), s.Status)
	}
	g.Writes()
	if g.reconcile("one"); g.Writes() != "" {
		t.Error("a failed snapshot is written again")
	}
}

// TestDeadlineOfOrders: an order to a node does not outlast the deadline, neither one that began before it nor that
// which thaws the guest.
func TestDeadlineOfOrders(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(), agent)
	limit := 200 * time.Millisecond
	g.snapshot("one", func(s *vmSnapshot) {
		s.CreationTimestamp = metav1.NewTime(g.now)
		s.Spec.FailureDeadline = &metav1.Duration{Duration: limit}
	})
	g.node.asked = func(ctx context.Context, name string) {
		if name == controlFreeze {
			<-ctx.Done() // a node that does not answer
			g.node.fail = ctx.Err()
			return
		}
		if s := g.get("one"); phase(s) != api.Failed {
			t.Errorf("%s: the snapshot is %s", name, phase(s))
		}
	}
	for g.node.fail == nil {
		result := g.reconcile("one")
		assert.Assert(t, result.RequeueAfter > 0 && result.RequeueAfter <= limit+time.Millisecond, result)
	}
	g.now = g.get("one").CreationTimestamp.Add(limit + time.Millisecond)
	g.reconcile("one")
	g.is("one", api.Failed, "Operation failed")
	assert.Assert(t, strings.HasSuffix(g.node.said(), controlUnfreeze))
	assert.Equal(t, g.lockedBy(), "")
}

// TestWaits: what keeps a snapshot from beginning, in words.
func TestWaits(t *testing.T) {
	other := "other"
	for want, change := range map[string]func(g *rig, vm *kubevirt.VirtualMachine){
		"Source does not exist": func(g *rig, vm *kubevirt.VirtualMachine) {
			if err := g.Delete(g.t.Context(), vm); err != nil {
				g.t.Fatal(err)
			}
		},
		`Source not locked snapshot "other" in progress`: func(g *rig, vm *kubevirt.VirtualMachine) {
			fakecluster.Change(g.t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) {
				vm.Status.SnapshotInProgress, vm.Finalizers = &other, []string{sourceFinalizer}
			})
		},
		`Source not locked restore "other" in progress`: func(g *rig, vm *kubevirt.VirtualMachine) {
			fakecluster.Change(g.t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) { vm.Status.RestoreInProgress = &other })
		},
		"install external-snapshotter":           func(g *rig, _ *kubevirt.VirtualMachine) { g.driver.served = false },
		"the cluster has no VolumeSnapshotClass": func(g *rig, _ *kubevirt.VirtualMachine) { g.driver.classes = nil },
		"Source not locked source default/web volume not bound: claim-root": func(g *rig, _ *kubevirt.VirtualMachine) {
			pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claim-root"}}
			fakecluster.Change(g.t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })
		},
		"volume not populated: claim-data": func(g *rig, vm *kubevirt.VirtualMachine) {
			g.volumes["claim-data"] = datavolume.State{Served: true, Found: true, Phase: "ImportInProgress"}
			fakecluster.Change(g.t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) {
				vm.Spec.Template.Spec.Volumes[1].VolumeSource = kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "claim-data"}}
			})
		},
		"source is offline but pod backup uses PVC claim-data": func(g *rig, _ *kubevirt.VirtualMachine) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "backup"}}
			p.Spec.Volumes = []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim-data"},
			}}}
			g.Add(g.t, p)
			g.r.sources.live = fakecluster.Ended(g.r.sources.live)
		},
		"source is offline but a pod may use its PVCs (too many objects in the namespace: more than 8192": func(g *rig, _ *kubevirt.VirtualMachine) {
			g.r.sources.live = fakecluster.Endless(g.r.sources.live, new(corev1.PodList))
		},
		"source is being migrated": func(g *rig, vm *kubevirt.VirtualMachine) {
			fakecluster.Change(g.t, g.Cluster, g.runs(vm, agent), func(vmi *instance) {
				vmi.Status.MigrationState = &kubevirt.VirtualMachineInstanceMigrationState{MigrationUID: "x"}
			})
		},
	} {
		g := newRig(t)
		change(g, g.vm())
		g.snapshot("one")
		g.reconcile("one")
		s := g.is("one", api.InProgress, want)
		if g.content(s) != nil || len(g.driver.all) > 0 {
			t.Errorf("%s: a snapshot began", want)
		}
		g.now = g.now.Add(6 * time.Minute)
		g.reconcile("one")
		if c := find(g.is("one", api.Failed, ""), api.ConditionFailure); !strings.Contains(c.Message, want) {
			t.Errorf("the failure says %q, want %q", c.Message, want)
		}
	}
}

// TestDeletion: a snapshot takes its content with it, unless it should be retained.
func TestDeletion(t *testing.T) {
	for _, policy := range []api.DeletionPolicy{api.VirtualMachineSnapshotContentDelete, api.VirtualMachineSnapshotContentRetain} {
		g := newRig(t)
		g.vm()
		g.snapshot("one", func(s *vmSnapshot) { s.Spec.DeletionPolicy = &policy })
		g.reconcile("one")
		g.driver.take(true)
		g.reconcile("one")
		s := g.is("one", api.Succeeded, "")
		if err := g.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		g.reconcile("one")
		if g.Exists(t, s) {
			t.Errorf("%s: the snapshot is still there", policy)
		}
		content := g.content(s)
		if retained := content != nil; retained != (policy == api.VirtualMachineSnapshotContentRetain) {
			t.Errorf("%s: content %v", policy, content)
		}
		if content != nil && len(content.Finalizers) > 0 {
			t.Errorf("the retained content has the finalizers %v", content.Finalizers)
		}
	}
}

// TestDeletedBeforeRestored: a snapshot stays while a PVC that is restored from it is not bound.
func TestDeletedBeforeRestored(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.snapshot("one")
	g.reconcile("one")
	g.driver.take(true)
	g.reconcile("one")
	s := g.is("one", api.Succeeded, "Operation complete")
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "restored"}}
	from := g.content(s).Spec.VolumeBackups[0].VolumeSnapshotName
	pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: volumesnapshot.Kind, Name: *from}
	pvc.Status.Phase = corev1.ClaimPending
	g.Add(t, pvc)
	if err := g.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if again := g.reconcile("one").RequeueAfter; again != retry || g.content(s) == nil || !strings.Contains(g.Events(), "until PVC restored") {
		t.Errorf("again after %s, content %v", again, g.content(s))
	}
	fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
	live := g.r.contents.live
	g.r.contents.live = fakecluster.Endless(live, new(corev1.PersistentVolumeClaimList))
	if g.reconcile("one"); g.content(s) == nil || !strings.Contains(g.Events(), "since a PVC may be restored from it (too many objects") {
		t.Error("a snapshot goes while the namespace has too many PVCs to see whether one is restored from it")
	}
	g.r.contents.live = live
	g.reconcile("one")
	if g.content(s) != nil || g.Exists(t, s) {
		t.Errorf("content %v", g.content(s))
	}
}

// TestDeletedInProgress: a snapshot that is deleted meanwhile leaves nothing, and no frozen guest.
func TestDeletedInProgress(t *testing.T) {
	g := newRig(t)
	g.runs(g.vm(), agent)
	g.snapshot("one")
	g.reconcile("one")
	s := g.get("one")
	if err := g.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	g.node.fail = errors.New("the node is gone") // it thaws the guest by itself
	g.reconcile("one")
	if g.Exists(t, s) || g.content(s) != nil || g.lockedBy() != "" {
		t.Errorf("left: content %v, lock of %q", g.content(s), g.lockedBy())
	}
}

// TestRevisions: the content has copies of the revisions of the VM's instance type, which
// outlive the VM and the snapshot.
func TestRevisions(t *testing.T) {
	g := newRig(t)
	g.vm(func(vm *kubevirt.VirtualMachine) {
		vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "large"}
		vm.Spec.Preference = &kubevirt.PreferenceMatcher{Name: "linux", RevisionName: "of-preference"}
		vm.Status.InstancetypeRef = &kubevirt.InstancetypeStatusRef{
			Name: "large", ControllerRevisionRef: &kubevirt.ControllerRevisionRef{Name: "of-type"},
		}
	})
	for _, name := range []string{"of-type", "of-preference"} {
		o := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"of": name}}}
		o.Data.Raw = []byte(`{"kind":"` + name + `"}`)
		g.Add(t, o)
	}
	g.snapshot("one")
	g.reconcile("one")
	s := g.get("one")
	content := g.content(s)
	spec := content.Spec.Source.VirtualMachine.Spec
	for of, name := range map[string]string{"of-type": spec.Instancetype.RevisionName, "of-preference": spec.Preference.RevisionName} {
		o := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if name == of || !g.Exists(t, o) || o.Labels["of"] != of || !strings.Contains(string(o.Data.Raw), of) {
			t.Errorf("revision %s is not a copy of %s: %+v", name, of, o)
		}
		if len(o.OwnerReferences) != 2 || o.OwnerReferences[0].UID != s.UID || o.OwnerReferences[1].UID != content.UID {
			t.Errorf("revision %s has the owners %+v", name, o.OwnerReferences)
		}
	}
}

// TestClasses: the class is that of the driver, and of several the default one.
func TestClasses(t *testing.T) {
	g := newRig(t)
	class := "csi"
	g.driver.classes = append(g.driver.classes, volumesnapshot.Class{Name: "other", Driver: "csi"}, volumesnapshot.Class{Name: "foreign", Driver: "x"})
	if name, err := g.r.contents.classOf(t.Context(), &class); err == nil || !strings.Contains(err.Error(), "mark one as default") {
		t.Errorf("%q, %v", name, err)
	}
	g.driver.classes[1].Default = true
	if name, err := g.r.contents.classOf(t.Context(), &class); err != nil || name != "other" {
		t.Errorf("%q, %v", name, err)
	}
}

// TestMissingLater: a ready snapshot that has lost a VolumeSnapshot is ready no more.
func TestMissingLater(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.snapshot("one")
	g.reconcile("one")
	g.driver.take(true)
	g.reconcile("one")
	clear(g.driver.all)
	g.reconcile("one")
	if s := g.is("one", api.Succeeded, ""); *s.Status.ReadyToUse || !strings.Contains(*s.Status.Error.Message, "missing") {
		t.Errorf("status %+v", s.Status)
	}
}
