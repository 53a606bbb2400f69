package vm

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestRevision: the spec of a start is kept under KubeVirt's name, and that of the start
// before goes.
func TestRevision(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	vm := g.vm()
	former, next := revision(vm, 3), revision(vm, 4)
	if err := g.Get(t.Context(), client.ObjectKeyFromObject(former), former); err != nil {
		t.Fatal(err)
	}
	if former.Name != "revision-start-vm-"+string(vm.UID)+"-3" || former.Revision != 3 || !metav1.IsControlledBy(former, vm) {
		t.Errorf("revision %+v", former)
	}
	var kept kubevirt.VirtualMachine
	if err := json.Unmarshal(former.Data.Raw, &kept); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(vm.Spec, kept.Spec); diff != "" {
		t.Errorf("its spec (-VM +revision):\n%s", diff)
	}
	// A collector removes an owner only from data that the API server encodes as it is.
	var again any
	if err := json.Unmarshal(former.Data.Raw, &again); err != nil {
		t.Fatal(err)
	}
	if sorted, err := json.Marshal(again); err != nil || string(sorted) != string(former.Data.Raw) {
		t.Errorf("the data is not sorted: %s, %v", former.Data.Raw, err)
	}
	if got := g.vmi().Annotations[kubevirt.VirtualMachineGenerationAnnotation]; former.Name != pod.RevisionName(vm.UID, got) {
		t.Errorf("the instance is of generation %s", got)
	}
	vm.Generation, vm.Status.ObservedGeneration = 4, 3
	for range 2 { // the second time changes nothing
		if err := g.r.keepRevision(t.Context(), vm); err != nil {
			t.Fatal(err)
		}
	}
	if !g.Exists(t, &appsv1.ControllerRevision{ObjectMeta: next.ObjectMeta}) || g.Exists(t, &appsv1.ControllerRevision{ObjectMeta: former.ObjectMeta}) {
		t.Error("not the last start's revision alone is left")
	}
}

// TestStartPaused: a request to start a halted VM paused changes its strategy, and only
// that start is paused.
func TestStartPaused(t *testing.T) {
	g := newRig(t)
	g.add(kubevirt.RunStrategyHalted)
	g.reconcile()
	vm := g.vm()
	vm.Status.StateChangeRequests = []kubevirt.VirtualMachineStateChangeRequest{{
		Action: kubevirt.StartRequest, Data: map[string]string{kubevirt.StartRequestDataPausedKey: kubevirt.StartRequestDataPausedTrue},
	}}
	if err := g.Client.Status().Update(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	g.reconcile()
	g.reconcile()
	if s := g.vmi().Spec.StartStrategy; s == nil || *s != kubevirt.StartStrategyPaused || *g.vm().Spec.RunStrategy != always {
		t.Errorf("start strategy %v of a VM that is %s", s, *g.vm().Spec.RunStrategy)
	}
	g.reconcile()
	if left := g.vm().Status.StateChangeRequests; len(left) > 0 {
		t.Errorf("requests left: %v", left)
	}
}
