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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	snapshots "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/measures"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

func types() []func(*runtime.Scheme) error {
	return []func(*runtime.Scheme) error{kubevirt.AddToScheme, snapshots.AddToScheme, corev1.AddToScheme}
}

func newCluster(t *testing.T, all ...client.Object) (*fakecluster.Cluster, *prometheus.Registry) {
	t.Helper()
	c := fakecluster.New(t, fakecluster.Options{Types: types()})
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
	vmi.Spec.EvictionStrategy = new(kubevirt.EvictionStrategyLiveMigrate)
	vmi.Spec.Networks = []kubevirt.Network{*kubevirt.DefaultPodNetwork(), {Name: "lan", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "office"}}}}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{
		*kubevirt.DefaultMasqueradeNetworkInterface(), {Name: "lan", Model: "e1000e", Binding: &kubevirt.PluginBinding{Name: "macvtap"}},
	}
	vmi.Status.Machine = &kubevirt.Machine{Type: "pc-q35-7.2"}
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
			"vmi_info evictable=" + evictable + " guest_os_arch=x86_64 guest_os_kernel_release=6.1 guest_os_machine=pc-q35-7.2 guest_os_name=Fedora" +
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
			"vm_labels" + of:                        1,
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

// TestMoves: a migration has when it began and ended, where the guest then was.
func TestMoves(t *testing.T) {
	m := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "move"}}
	m.Spec.VMIName = "web"
	m.Status.Phase = kubevirt.MigrationRunning
	m.Status.MigrationState = &kubevirt.VirtualMachineInstanceMigrationState{
		SourceNode: "a", TargetNode: "b", StartTimestamp: &metav1.Time{Time: time.Unix(1000, 0)},
	}
	c, registry := newCluster(t, m)
	const of = " migration_name=move name=web namespace=default node="
	check := func(want map[string]float64) {
		t.Helper()
		got := gathered(t, registry)
		for name := range got {
			if !strings.Contains(name, "_time_seconds ") {
				delete(got, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check(map[string]float64{"vmi_migration_start_time_seconds" + of + "a": 1000})
	fakecluster.Change(t, c, m, func(m *kubevirt.VirtualMachineInstanceMigration) {
		m.Status.Phase, m.Status.MigrationState.EndTimestamp = kubevirt.MigrationSucceeded, &metav1.Time{Time: time.Unix(1005, 0)}
	})
	check(map[string]float64{"vmi_migration_start_time_seconds" + of + "b": 1000, "vmi_migration_end_time_seconds" + of + "b status=succeeded": 1005})
}

// TestResources: what a template asks for; an instance type leaves the effective sizes open, but for the instance.
func TestResources(t *testing.T) {
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{}
	c, registry := newCluster(t, vm)
	check := func(change func(*kubevirt.DomainSpec), typed *kubevirt.InstancetypeMatcher, want map[string]float64) {
		t.Helper()
		fakecluster.Change(t, c, vm, func(vm *kubevirt.VirtualMachine) {
			vm.Spec.Template.Spec.Domain, vm.Spec.Instancetype = kubevirt.DomainSpec{}, typed
			change(&vm.Spec.Template.Spec.Domain)
		})
		got := map[string]float64{}
		for name, value := range gathered(t, registry) {
			if rest, ok := strings.CutPrefix(name, "vm_resource_"); ok {
				got[strings.Replace(rest, " name=web namespace=default", "", 1)] = value
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	none := func(*kubevirt.DomainSpec) {}
	check(none, nil, map[string]float64{
		"requests resource=cpu source=default unit=cores": 1, "requests resource=cpu source=default unit=sockets": 1,
		"requests resource=cpu source=default unit=threads": 1, "requests resource=cpu source=guest_effective unit=cores": 1,
	})
	check(none, &kubevirt.InstancetypeMatcher{Name: "small"}, map[string]float64{})
	check(func(d *kubevirt.DomainSpec) {
		d.CPU = &kubevirt.CPU{Cores: 2, Sockets: 3}
		d.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("1Ki")), Hugepages: &kubevirt.Hugepages{PageSize: "2Ki"}}
		d.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("3Ki"), "cpu": resource.MustParse("100m")}
		d.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("4Ki"), "cpu": resource.MustParse("2")}
	}, nil, map[string]float64{
		"requests resource=cpu source=domain unit=cores": 2, "requests resource=cpu source=domain unit=sockets": 3,
		"requests resource=cpu source=guest_effective unit=cores": 6, "requests resource=cpu source=requests unit=cores": 0.1,
		"requests resource=memory source=domain unit=bytes": 3072, "requests resource=memory source=guest unit=bytes": 1024,
		"requests resource=memory source=guest_effective unit=bytes": 1024, "requests resource=memory source=hugepages unit=bytes": 2048,
		"limits resource=cpu unit=cores": 2, "limits resource=memory unit=bytes": 4096,
	})
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	vmi.Spec.Domain.CPU, vmi.Spec.Domain.Memory = &kubevirt.CPU{Sockets: 2}, &kubevirt.Memory{Guest: new(resource.MustParse("5Ki"))}
	c.Add(t, vmi)
	check(none, &kubevirt.InstancetypeMatcher{Name: "small"}, map[string]float64{}) // it is another's
	fakecluster.Change(t, c, vmi, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	})
	check(none, &kubevirt.InstancetypeMatcher{Name: "small"}, map[string]float64{
		"requests resource=cpu source=domain unit=sockets": 2, "requests resource=cpu source=guest_effective unit=cores": 2,
		"requests resource=memory source=guest unit=bytes": 5120, "requests resource=memory source=guest_effective unit=bytes": 5120,
	})
}

// TestDisks: VMs' PVCs have sizes, those that a PVC asks for until it has one, and the restored ones count for their VM.
func TestDisks(t *testing.T) {
	pvc := func(name, size string) *corev1.PersistentVolumeClaim {
		one := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		one.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse(size)}
		return one
	}
	block := pvc("block", "1Ki")
	block.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	block.Status.Capacity = corev1.ResourceList{"storage": resource.MustParse("2Ki")}
	restored := pvc("restored", "1Ki")
	restored.Labels = map[string]string{pod.RestoredLabel: "old", pod.RestoredNamespaceLabel: "elsewhere"}
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{}
	named := corev1.PersistentVolumeClaimVolumeSource{ClaimName: "block"}
	vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{
		{Name: "a", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: named}}},
		{Name: "b", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "file"}}},
		{Name: "c", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "gone"}}},
		{Name: "d", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "i"}}},
	}
	_, registry := newCluster(t, vm, block, restored, pvc("file", "3Ki"))
	got := gathered(t, registry)
	for name := range got {
		if !strings.HasPrefix(name, "vm_disk") && !strings.HasPrefix(name, "vmsnapshot") {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(map[string]float64{
		"vm_disk_allocated_size_bytes device=a name=web namespace=default persistentvolumeclaim=block volume_mode=Block":     2048,
		"vm_disk_allocated_size_bytes device=b name=web namespace=default persistentvolumeclaim=file volume_mode=Filesystem": 3072,
		"vmsnapshot_disks_restored_from_source vm_name=old vm_namespace=elsewhere":                                           1,
		"vmsnapshot_disks_restored_from_source_bytes vm_name=old vm_namespace=elsewhere":                                     1024,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSnapshots: a snapshot that is complete has its time.
func TestSnapshots(t *testing.T) {
	taken := &snapshots.VirtualMachineSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}
	taken.Spec.Source.Name = "web"
	taken.Status = &snapshots.VirtualMachineSnapshotStatus{Phase: snapshots.InProgress, CreationTime: &metav1.Time{Time: time.Unix(1000, 0)}}
	c, registry := newCluster(t, taken)
	const name = "vmsnapshot_succeeded_timestamp_seconds name=web namespace=default snapshot_name=s"
	if got, ok := gathered(t, registry)[name]; ok {
		t.Errorf("in progress: %v", got)
	}
	fakecluster.Change(t, c, taken, func(s *snapshots.VirtualMachineSnapshot) { s.Status.Phase = snapshots.Succeeded })
	if got := gathered(t, registry)[name]; got != 1000 {
		t.Errorf("complete: %v", got)
	}
}

// TestLabels: a VM's labels name those of its metric; of two that become one, the first counts.
func TestLabels(t *testing.T) {
	named := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "a", Labels: map[string]string{"vm.kubevirt.io/os": "linux", "vm-kubevirt.io/os": "first"},
	}}
	named.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}}}
	plain := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}
	c := fakecluster.New(t, fakecluster.Options{Types: types()})
	c.Add(t, named, plain)
	registry := prometheus.NewRegistry() // a pedantic one knows no labels that differ
	registry.MustRegister(measures.New(c.Cached(), config.Source{}, registry, time.Now))
	got := gathered(t, registry)
	for name := range got {
		if !strings.HasPrefix(name, "vm_labels") {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(map[string]float64{
		"vm_labels label_app=db label_vm_kubevirt_io_os=first name=a namespace=default": 1, "vm_labels name=b namespace=default": 1,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEphemeral: a volume that an instance has got counts while its VM's template does not have it.
func TestEphemeral(t *testing.T) {
	volume := kubevirt.Volume{Name: "more", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "more", Hotpluggable: true}}}
	vm := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{}
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)},
	}}
	vmi.Spec.Volumes = []kubevirt.Volume{volume}
	c, registry := newCluster(t, vm, vmi)
	const name = "vmi_contains_ephemeral_hotplug_volume name=web namespace=default volume_name=more"
	if got := gathered(t, registry)[name]; got != 1 {
		t.Errorf("without the VM: %v", got)
	}
	fakecluster.Change(t, c, vm, func(vm *kubevirt.VirtualMachine) { vm.Spec.Template.Spec.Volumes = []kubevirt.Volume{volume} })
	if got, ok := gathered(t, registry)[name]; ok {
		t.Errorf("with the VM: %v", got)
	}
}

// TestPhases: an instance's phases take time, from its creation, its former phase and its deletion.
func TestPhases(t *testing.T) {
	born := time.Unix(1000, 0)
	now := born
	registry := prometheus.NewPedanticRegistry()
	m := measures.New(fakecluster.New(t, fakecluster.Options{Types: types()}).Cached(), config.Source{}, registry,
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
	m.Handler().OnDelete(vmi) // its end was seen
	vmi.Status.Phase, vmi.DeletionTimestamp = kubevirt.Running, &metav1.Time{Time: now}
	now = now.Add(5 * time.Second)
	m.Handler().OnDelete(vmi)
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
		"seconds Scheduled Running": 3, "seconds Running Succeeded": 2, "from_deletion_seconds Succeeded": 7,
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
