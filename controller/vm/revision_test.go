package vm

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
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

// noReader fails each read from the API server.
type noReader struct{}

func (noReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("a read from the API server")
}

func (noReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("a read from the API server")
}

// TestStartRequests: a first start of a VM that admission has completed takes three writes and
// no read from the API server.
func TestStartRequests(t *testing.T) {
	g := newRig(t)
	g.r.live = noReader{}
	g.add(always, admitted)
	g.reconcile()
	g.reconcile()
	if got := g.Writes(); got != "create ControllerRevision, create VirtualMachineInstance, patch status of VirtualMachine" {
		t.Errorf("writes: %s", got)
	}
}

// admitted gives a VM what admission does.
func admitted(vm *kubevirt.VirtualMachine) {
	vm.Finalizers = []string{kubevirt.VirtualMachineControllerFinalizer}
	vm.Spec.Template.Spec.Domain.Firmware = &kubevirt.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}
}

// TestStartRestarts crashes the controller before each write of a start after an edit: another
// controller completes the start, with one revision, that of the edit.
func TestStartRestarts(t *testing.T) {
	for crash, reached := 0, true; reached; crash++ {
		reached = false
		g := newRig(t)
		g.add(always, admitted)
		g.reconcile()
		g.reconcile()
		fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) {
			vm.Generation, vm.Spec.Template.Spec.Hostname = 4, "other"
		})
		if err := g.Delete(t.Context(), g.vmi()); err != nil {
			t.Fatal(err)
		}
		g.ended()
		n := 0
		g.Fail = func(string, client.Object) error {
			n++
			if n-1 == crash {
				reached = true
				return errors.New("crash")
			}
			return nil
		}
		for range 4 {
			_, _ = g.try()
		}
		var all appsv1.ControllerRevisionList
		if err := g.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		vm, vmi := g.vm(), g.vmi()
		switch {
		case vmi == nil || vmi.Spec.Hostname != "other" || generationOf(vmi) != 4:
			t.Errorf("crash %d: instance %+v", crash, vmi)
		case len(all.Items) != 1 || all.Items[0].Name != pod.RevisionName(vm.UID, "4"):
			t.Errorf("crash %d: revisions %+v", crash, all.Items)
		case !vm.Status.Created || vm.Status.ObservedGeneration != 4:
			t.Errorf("crash %d: status %+v", crash, vm.Status)
		}
	}
}
