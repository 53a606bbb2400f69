package measures_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/measures"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

func newCluster(t *testing.T, all ...client.Object) (*fakecluster.Cluster, *prometheus.Registry) {
	t.Helper()
	c := fakecluster.New(t, fakecluster.Options{Types: []func(*runtime.Scheme) error{kubevirt.AddToScheme}})
	c.Add(t, all...)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(measures.New(c.Cached(), config.Source{}, registry, time.Now))
	return c, registry
}

// TestMigrations: migrations are counted by KubeVirt's phases.
func TestMigrations(t *testing.T) {
	m := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "move"}}
	m.Spec.VMIName = "web"
	c, registry := newCluster(t, m)
	for phase, in := range map[kubevirt.VirtualMachineInstanceMigrationPhase]string{
		kubevirt.MigrationPhaseUnset: "unset", kubevirt.MigrationPending: "pending", kubevirt.MigrationScheduling: "scheduling",
		kubevirt.MigrationScheduled: "running", kubevirt.MigrationTargetReady: "running", kubevirt.MigrationRunning: "running",
		kubevirt.MigrationSucceeded: "succeeded", kubevirt.MigrationFailed: "failed",
	} {
		fakecluster.Change(t, c, m, func(m *kubevirt.VirtualMachineInstanceMigration) { m.Status.Phase = phase })
		want := map[string]float64{}
		for _, of := range []string{"unset", "pending", "scheduling", "running"} {
			want["vmi_migrations_in_"+of+"_phase"] = 0
		}
		if name := "vmi_migrations_in_" + in + "_phase"; phase == kubevirt.MigrationSucceeded || phase == kubevirt.MigrationFailed {
			want["vmi_migration_"+in+" namespace=default vmi=web vmim=move"] = 1
		} else {
			want[name] = 1
		}
		if diff := cmp.Diff(want, gathered(t, registry)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phase, diff)
		}
	}
}

// TestInstances: an instance has what it is, its addresses and its cards, and whether an eviction can move it.
func TestInstances(t *testing.T) {
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", Annotations: map[string]string{"vm.kubevirt.io/os": "fedora", "kubevirt.io/cluster-instancetype-name": "u1.small"},
	}}
	vmi.Spec.Architecture = "amd64"
	vmi.Spec.EvictionStrategy = new(kubevirt.EvictionStrategyLiveMigrate)
	vmi.Spec.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork(), {Name: "lan", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "office"}}}}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{
		*kubevirt.DefaultMasqueradeNetworkInterface(), {Name: "lan", Model: "e1000e", Binding: &kubevirt.PluginBinding{Name: "macvtap"}},
	}
	vmi.Status.Phase, vmi.Status.NodeName = kubevirt.Running, "node-1"
	vmi.Status.GuestOSInfo = kubevirt.VirtualMachineInstanceGuestOSInfo{Name: "Fedora", VersionID: "42", KernelRelease: "6.1", Machine: "x86_64"}
	vmi.Status.Interfaces = []kubevirt.VirtualMachineInstanceNetworkInterface{{Name: "default", InterfaceName: "eth0", IPs: []string{"10.0.0.1", "fd00::1"}}}
	c, registry := newCluster(t, vmi)
	const of = " name=web namespace=default"
	want := func(evictable string, blocked float64) {
		t.Helper()
		got := gathered(t, registry)
		for name := range got {
			if strings.HasPrefix(name, "vmi_migration") {
				delete(got, name)
			}
		}
		if diff := cmp.Diff(map[string]float64{
			"vmi_info evictable=" + evictable + " guest_os_arch=amd64 guest_os_kernel_release=6.1 guest_os_machine=x86_64 guest_os_name=Fedora" +
				" guest_os_version_id=42 instance_type=u1.small" + of + " node=node-1 os=fedora outdated=false phase=running vmi_pod=" + pod.Current(vmi): 1,
			"vmi_non_evictable" + of + " node=node-1": blocked,
			"vmi_status_addresses address=10.0.0.1 interface_name=eth0" + of + " node=node-1 type=InternalIP vnic_name=default": 1,
			"vmi_status_addresses address=fd00::1 interface_name=eth0" + of + " node=node-1 type=InternalIP vnic_name=default":  1,
			"vmi_vnic_info binding_name=masquerade binding_type=core" + of + " network=pod networking vnic_name=default":        1,
			"vmi_vnic_info binding_name=macvtap binding_type=plugin model=e1000e" + of + " network=office vnic_name=lan":        1,
		}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	want("false", 1)
	for status, blocked := range map[corev1.ConditionStatus]float64{corev1.ConditionFalse: 1, corev1.ConditionTrue: 0} {
		fakecluster.Change(t, c, vmi, func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Status.Conditions = []kubevirt.VirtualMachineInstanceCondition{{Type: kubevirt.VirtualMachineInstanceIsMigratable, Status: status}}
		})
		want(fmt.Sprint(blocked == 0), blocked)
	}
}

// TestMachines: a VM has what it is, and since when its status is in a group.
func TestMachines(t *testing.T) {
	born, ready := time.Unix(1000, 0), time.Unix(2000, 0)
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", CreationTimestamp: metav1.NewTime(born)}}
	vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Name: "small"}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{"vm.kubevirt.io/flavor": "tiny"}
	vm.Spec.Template.Spec.Domain.Machine = &kubevirt.Machine{Type: "q35"}
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{*kubevirt.DefaultBridgeNetworkInterface()}
	vm.Spec.Template.Spec.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
	c, registry := newCluster(t, vm)
	for status, tt := range map[kubevirt.VirtualMachinePrintableStatus]struct {
		label, group string
		conditions   []kubevirt.VirtualMachineCondition
		since        float64
	}{
		kubevirt.VirtualMachineStatusStopped:      {"stopped", "non_running", nil, 1000},
		kubevirt.VirtualMachineStatusStarting:     {"starting", "starting", nil, 1000},
		kubevirt.VirtualMachineStatusMigrating:    {"migrating", "migrating", nil, 1000},
		kubevirt.VirtualMachineStatusErrImagePull: {"errimagepull", "error", nil, 1000},
		kubevirt.VirtualMachineStatusRunning: {"running", "running", []kubevirt.VirtualMachineCondition{
			{Type: "A"}, {Type: "B", LastTransitionTime: metav1.NewTime(ready)}}, 2000},
	} {
		fakecluster.Change(t, c, vm, func(vm *kubevirt.VirtualMachine) {
			vm.Status.PrintableStatus, vm.Status.Conditions = status, tt.conditions
		})
		const of = " name=web namespace=default"
		want := map[string]float64{
			"vm_info flavor=tiny instance_type=small machine_type=q35" + of + " status=" + tt.label + " status_group=" + tt.group: 1,
			"vm_create_date_timestamp_seconds" + of: 1000,
			"vm_vnic_info binding_name=bridge binding_type=core" + of + " network=pod networking vnic_name=default": 1,
		}
		want["vm_"+tt.group+"_status_last_transition_timestamp_seconds"+of] = tt.since
		got := gathered(t, registry)
		for name := range got {
			if strings.HasPrefix(name, "vmi_") {
				delete(got, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", status, diff)
		}
	}
}

// TestPhases: an instance's phases take time, from its creation, its former phase and its deletion.
func TestPhases(t *testing.T) {
	born := time.Unix(1000, 0)
	now := born
	registry := prometheus.NewPedanticRegistry()
	m := measures.New(fakecluster.New(t, fakecluster.Options{Types: []func(*runtime.Scheme) error{kubevirt.AddToScheme}}).Cached(), config.Source{}, registry,
		func() time.Time { return now })
	registry.MustRegister(m)
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(born)}}
	to := func(phase kubevirt.VirtualMachineInstancePhase, after time.Duration) {
		before := vmi.DeepCopy()
		now = now.Add(after)
		vmi.Status.Phase = phase
		vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
			kubevirt.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(now)})
		m.Handler().OnUpdate(before, vmi)
		m.Handler().OnUpdate(vmi, vmi) // nothing new
	}
	to(kubevirt.Scheduled, time.Second)
	to(kubevirt.Running, 3*time.Second)
	vmi.DeletionTimestamp = &metav1.Time{Time: now}
	to(kubevirt.Succeeded, 2*time.Second)
	got := map[string]float64{}
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		for _, one := range family.GetMetric() {
			if h := one.GetHistogram(); h != nil {
				name := strings.TrimPrefix(family.GetName(), "kubevirt_vmi_phase_transition_time_")
				for _, l := range one.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = h.GetSampleSum()
			}
		}
	}
	want := map[string]float64{
		"from_creation_seconds Scheduled": 1, "from_creation_seconds Running": 4, "from_creation_seconds Succeeded": 6,
		"seconds Scheduled Running": 3, "seconds Running Succeeded": 2, "from_deletion_seconds Succeeded": 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLeader: a controller reports while it leads, and only one in a process.
func TestLeader(t *testing.T) {
	c, registry := newCluster(t)
	if err := measures.New(c.Cached(), config.Source{}, registry, time.Now).Start(t.Context()); err != nil || len(gathered(t, registry)) != 4 {
		t.Errorf("a second controller: %v", err)
	}
	registry = prometheus.NewPedanticRegistry()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := measures.New(c.Cached(), config.Source{}, registry, time.Now).Start(ctx); err != nil || len(gathered(t, registry)) != 0 {
		t.Errorf("after its end: %v, %v", err, gathered(t, registry))
	}
}

// gathered returns what is measured, by names without their prefix and with labels that are not empty.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "kubevirt_")
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					name += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
				}
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	return got
}
