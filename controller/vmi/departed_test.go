package vmi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestDeparted: a pod of an older state of etcd, whose guest a migration has taken since, is no instance that has shut down:
// its VirtualMachine would start a second guest. The status says where the guest is, until someone deletes the instance.
func TestDeparted(t *testing.T) {
	gone := condition.Departure{Node: "node2", Migration: "m-2"}
	unsure := gone
	unsure.Unanswered = true
	for name, tt := range map[string]struct {
		reason, message string
		code            int32
		known           types.UID // the migration whose end the instance has on record
		phase           kubevirt.VirtualMachineInstancePhase
		says            string
	}{
		"migrated":                {condition.ReasonMigrated, gone.Message(), 0, "", kubevirt.Unknown, "node2"},
		"after another one":       {condition.ReasonMigrated, gone.Message(), 0, "m-1", kubevirt.Unknown, "node2"},
		"handed over":             {condition.ReasonHandedOver, unsure.Message(), 137, "", kubevirt.Unknown, "it may run there"},
		"by an earlier version":   {condition.ReasonMigrated, "the guest runs on another node", 0, "", kubevirt.Unknown, "another node"},
		"a migration with an end": {condition.ReasonMigrated, gone.Message(), 0, "m-2", kubevirt.Succeeded, ""},
		"handed over, with one":   {condition.ReasonHandedOver, unsure.Message(), 137, "m-2", kubevirt.Failed, ""},
		"shut down":               {condition.ReasonCompleted, "", 0, "", kubevirt.Succeeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			p := g.started()
			if tt.known != "" {
				fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
					vmi.Status.MigrationState = &kubevirt.VirtualMachineInstanceMigrationState{
						MigrationUID: tt.known, EndTimestamp: new(metav1.NewTime(g.now)), SourcePod: p.Name, Failed: true,
					}
				})
			}
			g.state(p, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: tt.reason, Message: tt.message, ExitCode: tt.code}})
			g.reconcile()
			g.reconcile()
			vmi := g.vmi()
			if vmi.Status.Phase != tt.phase {
				t.Errorf("phase %s, want %s", vmi.Status.Phase, tt.phase)
			}
			if tt.says == "" {
				return
			}
			if c := find(vmi.Status.Conditions, kubevirt.VirtualMachineInstanceReady); vmi.Status.Reason != ReasonGuestElsewhere || !strings.Contains(c.Message, tt.says) {
				t.Errorf("reason %s, %+v", vmi.Status.Reason, c)
			}
			if events := g.Events(); !strings.Contains(events, ReasonGuestElsewhere) {
				t.Errorf("events %s", events)
			}
			if p = g.onePod(); !controllerutil.ContainsFinalizer(p, pod.Finalizer) {
				t.Error("the pod may go, and with it what it says")
			}
			if err := g.Delete(t.Context(), vmi); err != nil { // the way out
				t.Fatal(err)
			}
			for range 4 {
				g.reconcile()
			}
			if vmi := g.vmi(); vmi != nil {
				t.Errorf("a deleted instance stays: %+v", vmi.Status)
			}
		})
	}
}
