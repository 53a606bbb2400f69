package vmi

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// TestMigratable: the reasons are KubeVirt's, and the node has the last word.
func TestMigratable(t *testing.T) {
	pvc := func(mode corev1.PersistentVolumeAccessMode) pod.PVCObjects {
		return pod.PVCObjects{"claim": &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{mode}}}}
	}
	claim := func(s *kubevirt.VirtualMachineInstanceSpec) {
		source := new(kubevirt.PersistentVolumeClaimVolumeSource)
		source.ClaimName = "claim"
		s.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: source}}}
	}
	for name, tt := range map[string]struct {
		change func(*kubevirt.VirtualMachineInstanceSpec)
		moves  bool // the pod's address does
		pvcs   pod.PVCObjects
		state  string // the PVC with persistent state
		node   string // why not, by the node
		want   string // the reason; empty if it can be migrated
		method kubevirt.VirtualMachineInstanceMigrationMethod
	}{
		"a registry disk": {method: kubevirt.BlockMigration},
		"bridge": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Domain.Devices.Interfaces[0].InterfaceBindingMethod = kubevirt.InterfaceBindingMethod{Bridge: new(kubevirt.InterfaceBridge)}
			},
			want: kubevirt.VirtualMachineInstanceReasonInterfaceNotMigratable, method: kubevirt.BlockMigration,
		},
		"bridge, with an address that moves": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Domain.Devices.Interfaces[0].InterfaceBindingMethod = kubevirt.InterfaceBindingMethod{Bridge: new(kubevirt.InterfaceBridge)}
			},
			moves: true, method: kubevirt.BlockMigration,
		},
		"the default network": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) { s.Networks, s.Domain.Devices.Interfaces = nil, nil },
			want:   kubevirt.VirtualMachineInstanceReasonInterfaceNotMigratable, method: kubevirt.BlockMigration,
		},
		"a second network's bridge": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Networks = []kubevirt.Network{{Name: "default", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "lan"}}}}
				s.Domain.Devices.Interfaces[0].InterfaceBindingMethod = kubevirt.InterfaceBindingMethod{Bridge: new(kubevirt.InterfaceBridge)}
			},
			method: kubevirt.BlockMigration,
		},
		"a PVC that several nodes read": {change: claim, pvcs: pvc(corev1.ReadOnlyMany), want: kubevirt.VirtualMachineInstanceReasonDisksNotMigratable, method: kubevirt.LiveMigration},
		"such a PVC, read only": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				claim(s)
				s.Volumes[0].PersistentVolumeClaim.ReadOnly = true
			},
			pvcs: pvc(corev1.ReadOnlyMany), method: kubevirt.LiveMigration,
		},
		"such a PVC below an ephemeral disk": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{Ephemeral: &kubevirt.EphemeralVolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
				}}}}
			},
			pvcs: pvc(corev1.ReadOnlyMany), method: kubevirt.BlockMigration,
		},
		"SEV": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Domain.LaunchSecurity = &kubevirt.LaunchSecurity{SNP: new(kubevirt.SEVSNP)}
			},
			want: kubevirt.VirtualMachineInstanceReasonSEVNotMigratable, method: kubevirt.BlockMigration,
		},
		"TDX": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Domain.LaunchSecurity = &kubevirt.LaunchSecurity{TDX: new(kubevirt.TDX)}
			},
			want: kubevirt.VirtualMachineInstanceReasonTDXNotMigratable, method: kubevirt.BlockMigration,
		},
		"a hostDisk": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{HostDisk: &kubevirt.HostDisk{}}}}
			},
			want: kubevirt.VirtualMachineInstanceReasonDisksNotMigratable, method: kubevirt.LiveMigration,
		},
		"a device of a plug-in": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Domain.Devices.HostDevices = []kubevirt.HostDevice{{Name: "qat"}}
			},
			want: kubevirt.VirtualMachineInstanceReasonHostDeviceNotMigratable, method: kubevirt.BlockMigration,
		},
		"a GPU": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.Devices.GPUs = []kubevirt.GPU{{Name: "gpu"}} },
			want:   kubevirt.VirtualMachineInstanceReasonHostDeviceNotMigratable, method: kubevirt.BlockMigration,
		},
		"an SR-IOV interface": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Domain.Devices.Interfaces = append(s.Domain.Devices.Interfaces, kubevirt.Interface{
					Name: "fast", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{SRIOV: new(kubevirt.InterfaceSRIOV)},
				})
			},
			want: kubevirt.VirtualMachineInstanceReasonHostDeviceNotMigratable, method: kubevirt.BlockMigration,
		},
		"all Hyper-V features of the node": {
			change: func(s *kubevirt.VirtualMachineInstanceSpec) {
				s.Domain.Features = &kubevirt.Features{HypervPassthrough: &kubevirt.HyperVPassthrough{}}
			},
			want: kubevirt.VirtualMachineInstanceReasonHypervPassthroughNotMigratable, method: kubevirt.BlockMigration,
		},
		"a shared PVC":        {change: claim, pvcs: pvc(corev1.ReadWriteMany), method: kubevirt.LiveMigration},
		"a PVC of one node":   {change: claim, pvcs: pvc(corev1.ReadWriteOnce), want: kubevirt.VirtualMachineInstanceReasonDisksNotMigratable, method: kubevirt.LiveMigration},
		"an unknown PVC":      {change: claim, want: kubevirt.VirtualMachineInstanceReasonDisksNotMigratable, method: kubevirt.LiveMigration},
		"the node's own word": {node: "swtpm is too old", want: kubevirt.VirtualMachineInstanceReasonNotMigratable, method: kubevirt.BlockMigration},
	} {
		vmi := &kubevirt.VirtualMachineInstance{Spec: kubevirt.VirtualMachineInstanceSpec{
			Networks: []kubevirt.Network{*kubevirt.DefaultPodNetwork()},
			Volumes:  []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerDisk: new(kubevirt.ContainerDiskSource)}}},
		}}
		vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{
			Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)},
		}}
		if tt.moves {
			vmi.Annotations = map[string]string{"kubevirt.io/allow-pod-bridge-network-live-migration": ""}
		}
		if tt.change != nil {
			tt.change(&vmi.Spec)
		}
		v := seen(readyNode, corev1.PodRunning, running)
		v.pvcs = tt.pvcs
		if tt.node != "" {
			v.pod.Status.Conditions = append(v.pod.Status.Conditions, corev1.PodCondition{
				Type: condition.LiveMigratable, Status: corev1.ConditionFalse, Message: tt.node,
			})
		}
		c := migratable(vmi, v)
		if c.Reason != tt.want || (c.Status == corev1.ConditionTrue) != (tt.want == "") || tt.node != "" && c.Message != tt.node {
			t.Errorf("%s: %+v, want %q", name, c, tt.want)
		}
		if got := migrationMethod(&vmi.Spec); got != tt.method {
			t.Errorf("%s: %s, want %s", name, got, tt.method)
		}
	}
}

// TestStorageMigratable: disks do not matter, and the message has each reason.
func TestStorageMigratable(t *testing.T) {
	vmi := &kubevirt.VirtualMachineInstance{Spec: kubevirt.VirtualMachineInstanceSpec{
		Networks: []kubevirt.Network{*kubevirt.DefaultPodNetwork()},
		Volumes:  []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{HostDisk: &kubevirt.HostDisk{}}}},
	}}
	vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{
		Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)},
	}}
	storage := func() cond {
		v := seen(readyNode, corev1.PodRunning, running)
		all := conditions(vmi, v, time.Now())
		c := find(all, kubevirt.VirtualMachineInstanceIsStorageLiveMigratable)
		if c == nil {
			t.Fatalf("no condition among %+v", all)
		}
		return *c
	}
	if c := storage(); c.Status != corev1.ConditionTrue || c.Reason != "" {
		t.Errorf("with a hostDisk: %+v", c)
	}
	vmi.Spec.Domain.Devices.GPUs = []kubevirt.GPU{{Name: "gpu"}}
	vmi.Spec.Domain.Features = &kubevirt.Features{HypervPassthrough: &kubevirt.HyperVPassthrough{}}
	c := storage()
	const message = "HostDeviceNotLiveMigratable: VMI uses a PCI host devices, HypervPassthroughNotLiveMigratable: VMI uses hyperv passthrough"
	if c.Status != corev1.ConditionFalse || c.Reason != "NotMigratable" || c.Message != message {
		t.Errorf("with devices: %+v", c)
	}
}
