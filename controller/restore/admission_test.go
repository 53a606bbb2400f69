package restore

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestEarlyRefusals: a restore that would take another VM, or another VM's PVCs, is not created.
func TestEarlyRefusals(t *testing.T) {
	for name, one := range map[string]struct {
		target, want string
		inPlace      bool
	}{
		"the VM":            {target: "web", inPlace: true},
		"another VM":        {target: "other", want: "is not the one that snapshot"},
		"a new VM":          {target: "copy"},
		"a new VM in place": {target: "copy", inPlace: true, want: "would replace the PVCs of VM web"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.vm()
			s := &api.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "snapshot"}}
			if !g.Exists(t, s) {
				t.Fatal("no snapshot")
			}
			s.Spec.Source.Name = "web"
			if err := g.Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			g.Add(t, &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}})
			rs := g.restore(one.target, func(s *api.VirtualMachineRestoreSpec) {
				if one.inPlace {
					inPlace(s)
				}
			})
			if err := g.Delete(t.Context(), rs); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(map[string]any{"spec": rs.Spec})
			if err != nil {
				t.Fatal(err)
			}
			r := &admission.Review{Meta: metav1.ObjectMeta{Namespace: namespace}}
			if err := json.Unmarshal(text, &r.Object); err != nil {
				t.Fatal(err)
			}
			g.removeRestores()
			problems, err := checkOthers(t.Context(), g.Client, r)
			got := problems.ToAggregate()
			if err != nil || (got != nil) != (one.want != "") || got != nil && !strings.Contains(got.Error(), one.want) {
				t.Errorf("%v, %v; want %q", got, err, one.want)
			}
		})
	}
}

// TestRefusedRestoreStays: the VM that a refused restore names does not own the restore: the VM may be deleted.
func TestRefusedRestoreStays(t *testing.T) {
	g := newRig(t)
	g.vm()
	g.Add(t, &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}})
	rs := g.restore("other")
	_ = g.spin(3)
	if g.Exists(t, rs); len(rs.OwnerReferences) > 0 || !strings.Contains(reason(rs, api.ConditionProgressing), "are different") {
		t.Errorf("owners %+v, condition %q", rs.OwnerReferences, reason(rs, api.ConditionProgressing))
	}
	if err := g.Delete(t.Context(), &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}); err != nil {
		t.Fatal(err)
	}
	if g.finish(rs); !*rs.Status.Complete {
		t.Errorf("status %+v", rs.Status)
	}
}

// removeRestores removes all restores, with their finalizers.
func (g *rig) removeRestores() {
	g.t.Helper()
	var all api.VirtualMachineRestoreList
	if err := g.List(g.t.Context(), &all); err != nil {
		g.t.Fatal(err)
	}
	for i := range all.Items {
		all.Items[i].Finalizers = nil
		if err := g.Update(g.t.Context(), &all.Items[i]); err != nil {
			g.t.Fatal(err)
		}
	}
}
