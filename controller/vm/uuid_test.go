package vm

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// withUUID gives a VM a UUID, as admission does.
func withUUID(vm *kubevirt.VirtualMachine) {
	vm.Spec.Template.Spec.Domain.Firmware = &kubevirt.Firmware{UUID: "0d3c5b0a-6c0e-4c4e-9a0e-0a3f1c3f5a11"}
}

func uuidOf(vm *kubevirt.VirtualMachine) types.UID {
	if f := vm.Spec.Template.Spec.Domain.Firmware; f != nil {
		return f.UUID
	}
	return ""
}

// TestSetUUID: a new VM gets a UUID unless it has one, and an update that leaves it out
// does not take it away.
func TestSetUUID(t *testing.T) {
	const given = `{"template": {"spec": {"domain": {"firmware": {"uuid": "a", "serial": "s"}}}}}`
	set := func(old, now string) string {
		t.Helper()
		r := &admission.Review{Object: admission.Tree{"spec": decoded(t, now)}}
		if old != "" {
			r.Old = admission.Tree{"spec": decoded(t, old)}
		}
		spec := r.Object["spec"].(admission.Tree)
		setUUID(r, spec)
		id, _, err := unstructured.NestedString(spec, pathUUID()...)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const without = `{"template": {"spec": {"domain": {}}}}`
	first := set("", without)
	if first == "" || first == set("", without) {
		t.Errorf("a new VM's UUID is %q, and no other", first)
	}
	for _, tt := range []struct{ old, now, want string }{
		{"", given, "a"},
		{given, without, "a"},
		{without, without, ""},
		{without, given, "a"},
		{given, `{"template": {"spec": {"domain": {"firmware": {"uuid": "b"}}}}}`, "b"},
		{"", `{}`, ""},
	} {
		if got := set(tt.old, tt.now); got != tt.want {
			t.Errorf("%s in place of %s: UUID %q, want %q", tt.now, tt.old, got, tt.want)
		}
	}
}

// TestStoreUUID: a VM from before gets the UUID that its instance has, once, and needs no
// restart.
func TestStoreUUID(t *testing.T) {
	g := newRig(t)
	g.add(always)
	g.reconcile()
	g.phase(kubevirt.Running)
	g.reconcile()
	fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Domain.Firmware = nil })
	g.Writes()
	g.reconcile()
	g.expect("patch VirtualMachine")
	vm := g.vm()
	if got := uuidOf(vm); got != SystemUUID(vm.UID) || got != g.vmi().Spec.Domain.Firmware.UUID {
		t.Errorf("UUID %q, of the instance %q", got, g.vmi().Spec.Domain.Firmware.UUID)
	}
	if g.restartRequired() {
		t.Error("a restart is required")
	}
	g.reconcile()
	g.expect("")
}

// TestStoreNoUUID: where the UUID would ask for a restart, or admission refuses the VM, or
// a snapshot is under way, the VM stays as it is, and its instance has the same UUID.
func TestStoreNoUUID(t *testing.T) {
	t.Run("restart", func(t *testing.T) {
		g := newRig(t)
		g.add(always)
		g.reconcile()
		g.phase(kubevirt.Running)
		fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Domain.Firmware = new(kubevirt.Firmware) })
		whole, err := digest(g.vm(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.Annotations[pod.AnnotationTemplate] = whole })
		fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { vmi.Annotations[pod.AnnotationFixed] = "other" })
		g.reconcile()
		if uuidOf(g.vm()) != "" || g.restartRequired() {
			t.Errorf("UUID %q, a restart is required: %t", uuidOf(g.vm()), g.restartRequired())
		}
	})
	t.Run("refused", func(t *testing.T) {
		g := newRig(t)
		g.add(always, func(vm *kubevirt.VirtualMachine) {
			vm.Finalizers = []string{kubevirt.VirtualMachineControllerFinalizer}
		})
		g.Fail = func(verb string, o client.Object) error {
			if _, is := o.(*kubevirt.VirtualMachine); is && verb == "patch" {
				return apierrors.NewInvalid(kubevirt.VirtualMachineGroupVersionKind.GroupKind(), o.GetName(), nil)
			}
			return nil
		}
		g.reconcile()
		if vm := g.vm(); uuidOf(vm) != "" || g.vmi().Spec.Domain.Firmware.UUID != SystemUUID(vm.UID) {
			t.Errorf("UUID %q, of the instance %q", uuidOf(vm), g.vmi().Spec.Domain.Firmware.UUID)
		}
	})
	t.Run("snapshot", func(t *testing.T) {
		g := newRig(t)
		g.add(kubevirt.RunStrategyHalted)
		fakecluster.Change(t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { vm.Status.SnapshotInProgress = new("one") })
		g.reconcile()
		if got := uuidOf(g.vm()); got != "" {
			t.Errorf("UUID %q", got)
		}
	})
}
