package clone

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "kubevirt.io/api/clone/v1beta1"
	kubevirt "kubevirt.io/api/core/v1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/index"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestVM: a VM's clone has a snapshot and a restore until its PVCs are bound. The clone goes with
// its VM.
func TestVM(t *testing.T) {
	g := newRig(t)
	source := g.vm("web")
	serial := "42"
	g.clone(kindVM, "web", func(s *api.VirtualMachineCloneSpec) {
		s.NewSMBiosSerial, s.VolumeNamePolicy = &serial, new(api.VolumeNamePolicyPrefixTargetName)
	})
	g.expect(api.SnapshotInProgress, "Still processing: snapshot tmp-snapshot-uid-clone is not ready to use")
	s := g.snapshot()
	if !g.Exists(t, s) || s.Spec.Source.Kind != kindVM || s.Spec.Source.Name != "web" || *s.Spec.Source.APIGroup != "kubevirt.io" || !metav1.IsControlledBy(s, g.c) {
		t.Errorf("snapshot %+v", s)
	}
	g.taken(s.Name, source, "root")
	g.expect(api.RestoreInProgress, "Still processing: restore tmp-restore-uid-clone is not complete")
	rs := g.restore()
	g.Exists(t, rs)
	if got := strings.Join(rs.Spec.Patches, "\n"); rs.Spec.Target.Name != "copy" || rs.Spec.VirtualMachineSnapshotName != s.Name || !metav1.IsControlledBy(rs, g.c) ||
		got != `{"op":"add","path":"/spec/template/spec/domain/firmware","value":{"serial":"42"}}` ||
		*rs.Spec.VolumeRestorePolicy != snapshotapi.VolumeRestorePolicyPrefixTargetName {
		t.Errorf("restore %+v", rs.Spec)
	}
	if st := g.c.Status; *st.SnapshotName != s.Name || *st.RestoreName != rs.Name || st.TargetName != nil {
		t.Errorf("status %+v", st)
	}
	pvc := g.restored()
	g.expect(api.Succeeded, "Ready: PVC copy-root is not bound: start the VM")
	if snapshot, restore := g.has(); !snapshot || !restore || *g.c.Status.TargetName != "copy" || g.c.Status.CreationTime == nil {
		t.Errorf("before the PVC is bound: snapshot %t, restore %t, %+v", snapshot, restore, g.c.Status)
	}
	fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
	g.expect(api.Succeeded, "Ready")
	if snapshot, restore := g.has(); snapshot || restore || g.c.Status.SnapshotName != nil || g.c.Status.RestoreName != nil {
		t.Errorf("afterwards: snapshot %t, restore %t, %+v", snapshot, restore, g.c.Status)
	}
	events := g.Events()
	for _, want := range []string{"SnapshotCreated", "SnapshotReady", "RestoreCreated", "RestoreReady", "TargetVMCreated", "PVCBound"} {
		if !strings.Contains(events, "Normal "+want) {
			t.Errorf("no event %s:\n%s", want, events)
		}
	}
	g.Writes()
	g.expect(api.Succeeded, "Ready")
	if got := g.Writes(); got != "" {
		t.Errorf("writes of a clone that is complete: %s", got)
	}
	if err := g.Delete(t.Context(), &kubevirt.VirtualMachine{ObjectMeta: meta("copy")}); err != nil {
		t.Fatal(err)
	}
	if err := g.try(); err != nil || g.Exists(t, g.c) {
		t.Errorf("without its VM the clone is there; %v", err)
	}
}

// TestSnapshot: the snapshot that is cloned stays.
func TestSnapshot(t *testing.T) {
	g := newRig(t)
	source := g.vm("web")
	g.clone(kindSnapshot, "before")
	g.expect(api.PhaseUnset, "Source doesnt exist: VirtualMachineSnapshot default/before")
	if got := g.Events(); !strings.HasPrefix(got, "Normal SourceDoesNotExist") {
		t.Errorf("events %s", got)
	}
	s := &snapshotapi.VirtualMachineSnapshot{ObjectMeta: meta("before")}
	g.Add(t, s)
	g.expect(api.SnapshotInProgress, "Still processing: snapshot before is not ready to use")
	g.taken("before", source, "root")
	g.expect(api.RestoreInProgress, "Still processing")
	pvc := g.restored()
	fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
	g.expect(api.Succeeded, "Ready")
	if _, restore := g.has(); restore || !g.Exists(t, s) || s.DeletionTimestamp != nil {
		t.Errorf("restore %t, snapshot %+v", restore, s)
	}
}

// TestPending: a clone that cannot begin says why, has made nothing, and begins later.
func TestPending(t *testing.T) {
	for want, prepare := range map[string]func(g *rig) (solve func()){
		"Source doesnt exist: VirtualMachine default/web": func(g *rig) func() {
			return func() { g.vm("web") }
		},
		"volume root does not support snapshots: No class": func(g *rig) func() {
			vm := g.vm("web")
			set := func(enabled bool, reason string) {
				fakecluster.Change(g.t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) {
					vm.Status.VolumeSnapshotStatuses[1] = kubevirt.VolumeSnapshotStatus{Name: "root", Enabled: enabled, Reason: reason}
				})
			}
			set(false, "No class")
			return func() { set(true, "") }
		},
		"volume root snapshot support unknown": func(g *rig) func() {
			vm := g.vm("web")
			fakecluster.Change(g.t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) { vm.Status.VolumeSnapshotStatuses = nil })
			return func() {
				fakecluster.Change(g.t, g.Cluster, vm, func(vm *kubevirt.VirtualMachine) {
					vm.Status.VolumeSnapshotStatuses = []kubevirt.VolumeSnapshotStatus{{Name: "root", Enabled: true}}
				})
			}
		},
		"VM copy exists: delete it, or name another target": func(g *rig) func() {
			g.vm("web")
			other := g.vm("copy")
			return func() {
				if err := g.Delete(g.t.Context(), other); err != nil {
					g.t.Fatal(err)
				}
			}
		},
	} {
		g := newRig(t)
		solve := prepare(g)
		g.clone(kindVM, "web")
		g.expect(api.PhaseUnset, want)
		g.expect(api.PhaseUnset, want)
		if snapshot, _ := g.has(); snapshot || strings.Count(g.Events(), want) != 1 || g.c.Status.Conditions[0].Reason != "Pending" {
			t.Errorf("%s: snapshot %t, conditions %+v", want, snapshot, g.c.Status.Conditions)
		}
		solve()
		g.expect(api.SnapshotInProgress, "Still processing")
	}
}

// TestFailures: a clone that fails says why, and leaves no snapshot and no restore.
func TestFailures(t *testing.T) {
	for want, fail := range map[string]func(g *rig, source *kubevirt.VirtualMachine){
		"snapshot tmp-snapshot-uid-clone failed: deadline exceeded: not locked": func(g *rig, _ *kubevirt.VirtualMachine) {
			fakecluster.Change(g.t, g.Cluster, g.snapshot(), func(s *snapshotapi.VirtualMachineSnapshot) {
				s.Status = &snapshotapi.VirtualMachineSnapshotStatus{Phase: snapshotapi.Failed}
				s.Status.Conditions = []snapshotapi.Condition{
					{Type: snapshotapi.ConditionFailure, Reason: "deadline exceeded", Message: "not locked"},
					{Type: snapshotapi.ConditionProgressing, Reason: "Operation failed"},
				}
			})
		},
		"volume root is not backed up in snapshot tmp-snapshot-uid-clone": func(g *rig, source *kubevirt.VirtualMachine) {
			g.taken("tmp-snapshot-uid-clone", source)
		},
		"snapshot content content does not exist": func(g *rig, source *kubevirt.VirtualMachine) {
			g.taken("tmp-snapshot-uid-clone", source, "root")
			if err := g.Delete(g.t.Context(), &snapshotapi.VirtualMachineSnapshotContent{ObjectMeta: meta("content")}); err != nil {
				g.t.Fatal(err)
			}
		},
		"spec.patches:": func(g *rig, source *kubevirt.VirtualMachine) {
			fakecluster.Change(g.t, g.Cluster, g.c, func(c *vmClone) { c.Spec.Patches = []string{`{"op": "remove", "path": "/spec/none"}`} })
			g.taken("tmp-snapshot-uid-clone", source, "root")
		},
		"the patches rename the VM": func(g *rig, source *kubevirt.VirtualMachine) {
			fakecluster.Change(g.t, g.Cluster, g.c, func(c *vmClone) {
				c.Spec.Patches = []string{`{"op": "replace", "path": "/metadata/name", "value": "other"}`}
			})
			g.taken("tmp-snapshot-uid-clone", source, "root")
		},
		`the source has no interface "lan" in its spec`: func(g *rig, source *kubevirt.VirtualMachine) {
			fakecluster.Change(g.t, g.Cluster, g.c, func(c *vmClone) { c.Spec.NewMacAddresses = map[string]string{"lan": "02:00:00:00:00:01"} })
			g.taken("tmp-snapshot-uid-clone", source, "root")
		},
		"restore tmp-restore-uid-clone failed: Restore target not ready": func(g *rig, source *kubevirt.VirtualMachine) {
			g.taken("tmp-snapshot-uid-clone", source, "root")
			g.expect(api.RestoreInProgress, "Still processing")
			fakecluster.Change(g.t, g.Cluster, g.restore(), func(rs *snapshotapi.VirtualMachineRestore) {
				rs.Status = &snapshotapi.VirtualMachineRestoreStatus{Conditions: []snapshotapi.Condition{
					{Type: snapshotapi.ConditionFailure, Status: corev1.ConditionTrue, Reason: "Restore target not ready"},
				}}
			})
		},
		"snapshot tmp-snapshot-uid-clone does not exist anymore": func(g *rig, source *kubevirt.VirtualMachine) {
			g.taken("tmp-snapshot-uid-clone", source, "root")
			g.expect(api.RestoreInProgress, "Still processing")
			if err := g.Delete(g.t.Context(), g.snapshot()); err != nil {
				g.t.Fatal(err)
			}
		},
		"VM copy has been deleted": func(g *rig, source *kubevirt.VirtualMachine) {
			g.taken("tmp-snapshot-uid-clone", source, "root")
			g.expect(api.RestoreInProgress, "Still processing")
			g.restored()
			if err := g.Delete(g.t.Context(), &kubevirt.VirtualMachine{ObjectMeta: meta("copy")}); err != nil {
				g.t.Fatal(err)
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			g := newRig(t)
			source := g.vm("web")
			g.clone(kindVM, "web")
			g.expect(api.SnapshotInProgress, "Still processing")
			fail(g, source)
			g.Events()
			g.expect(api.Failed, want)
			g.expect(api.Failed, want)
			if snapshot, restore := g.has(); snapshot || restore || g.c.Status.SnapshotName != nil || g.c.Status.RestoreName != nil {
				t.Errorf("snapshot %t, restore %t, %+v", snapshot, restore, g.c.Status)
			}
			if events := g.Events(); strings.Count(events, "Warning") != 1 || !strings.Contains(events, want) {
				t.Errorf("events:\n%s", events)
			}
		})
	}
}

// TestRetries: a write that fails is repeated, and nothing is made twice or left behind.
func TestRetries(t *testing.T) {
	for i := range 12 {
		g := newRig(t)
		source := g.vm("web")
		g.clone(kindVM, "web")
		n := 0
		g.Fail = func(string, client.Object) error {
			if n++; n == i+1 {
				return errors.New("timeout")
			}
			return nil
		}
		step := func() {
			t.Helper()
			if g.try() != nil {
				if err := g.try(); err != nil {
					t.Fatal(err)
				}
			}
		}
		step()
		g.taken(g.snapshot().Name, source, "root")
		step()
		pvc := g.restored()
		step()
		fakecluster.Change(t, g.Cluster, pvc, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound })
		step()
		g.expect(api.Succeeded, "Ready")
		if snapshot, restore := g.has(); snapshot || restore {
			t.Errorf("write %d failed: snapshot %t, restore %t", i+1, snapshot, restore)
		}
		if i == 11 && n > 11 {
			t.Errorf("%d writes, of which 12 have been tested", n)
		}
	}
}

// TestRelated: clones are found by their source, their VM and the PVCs of that.
func TestRelated(t *testing.T) {
	g := newRig(t)
	g.clone(kindVM, "web", func(s *api.VirtualMachineCloneSpec) { s.Target = nil })
	name := targetName(g.c)
	if !strings.HasPrefix(name, "clone-web-") || name != targetName(g.c) {
		t.Errorf("the name of the target is %s", name)
	}
	if got := strings.Join(related(g.c), " "); got != "VirtualMachine/"+name+" VirtualMachine/web" {
		t.Errorf("related to %s", got)
	}
	vm := g.vm(name)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: meta("copy-root")}
	if got := ownerOf(pvc); got != "" {
		t.Errorf("a PVC without an owner is of %s", got)
	}
	pvc.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	got := index.Requests(t.Context(), g.r.Client, new(vmCloneList), namespace, indexOf, ownerOf(pvc))
	if len(got) != 1 {
		t.Errorf("clones of the PVC: %v", got)
	}
}
