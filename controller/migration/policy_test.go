package migration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	migrations "kubevirt.io/api/migrations/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestPolicy: the order to the source has what the instance's policy says, as it was when the
// migration began, and the status reports it.
func TestPolicy(t *testing.T) {
	g := newRig(t)
	vmi := g.running()
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *instance) {
		vmi.Labels = map[string]string{"app": "db"}
		vmi.Status.MigrationMethod = kubevirt.LiveMigration
		vmi.Status.Memory = &kubevirt.MemoryStatus{GuestCurrent: new(resource.MustParse("1536Mi"))}
	})
	g.Add(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"env": "prod"}}})
	policy := func(name string, instance migrations.LabelSelector) *migrations.MigrationPolicy {
		return &migrations.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: migrations.MigrationPolicySpec{
			Selectors:         &migrations.Selectors{VirtualMachineInstanceSelector: instance, NamespaceSelector: migrations.LabelSelector{"env": "prod"}},
			AllowAutoConverge: new(true), AllowWorkloadDisruption: new(true), BandwidthPerMigration: new(resource.MustParse("64Mi")), CompletionTimeoutPerGiB: new(int64(20)),
		}}
	}
	slow := policy("slow", migrations.LabelSelector{"app": "db"})
	g.Add(t, slow)
	g.Add(t, policy("another", migrations.LabelSelector{"app": "web"}))
	g.to(kubevirt.MigrationScheduling)
	if err := g.Delete(t.Context(), slow); err != nil { // later changes have no effect
		t.Fatal(err)
	}
	g.boot(g.target(), "node2", "10.0.0.2")
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *instance) {
		vmi.Status.MigrationMethod = kubevirt.LiveMigration
		vmi.Status.Memory = &kubevirt.MemoryStatus{GuestCurrent: new(resource.MustParse("1536Mi"))}
	})
	if _, err := g.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g.migration())}); err != nil {
		t.Fatal(err)
	}
	if s := g.nodes.sent; !s.AutoConverge || !s.Pause || s.Bandwidth != 64<<20 || s.Timeout != 40*time.Second || s.PerGiB != 20*time.Second || s.Stall != 150*time.Second {
		t.Errorf("order: %+v", s)
	}
	for what, s := range map[string]*state{"migration": g.migration().Status.MigrationState, "instance": g.vmi().Status.MigrationState} {
		if s.MigrationPolicyName == nil || *s.MigrationPolicyName != "slow" || *s.VMIMConfigurationOptions.CompletionTimeoutPerGiB != 20 {
			t.Errorf("%s: %+v", what, s)
		}
	}
}

// TestCopyTime: no policy makes a time that overflows.
func TestCopyTime(t *testing.T) {
	vmi := new(instance)
	vmi.Status.Memory = &kubevirt.MemoryStatus{GuestCurrent: new(resource.MustParse("4Ti"))}
	for perGiB, want := range map[int64]time.Duration{0: 0, 150: 4096 * 150 * time.Second, 1 << 31: maxCopy * time.Second} {
		if got := copyTime(vmi, perGiB); got != want {
			t.Errorf("%d s: %s, want %s", perGiB, got, want)
		}
	}
}
