package controller

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// maxLive is how many bytes the caches may hold for a running VM: its object, its instance's
// and its pod's. Go's heap is half as large again before garbage is collected.
const maxLive = 9 << 10

// TestCacheMemory: the caches' memory for a VM is bounded.
func TestCacheMemory(t *testing.T) {
	const n = 500
	var texts [][]byte
	for i := range n {
		for _, o := range running(t, i) {
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
	}
	read := newCached(t)
	objects := make([]any, len(texts))
	read(texts[0]) // what is made once
	before := live()
	for i, text := range texts {
		objects[i] = read(text)
	}
	each := (live() - before) / n
	if each > maxLive {
		t.Errorf("the caches hold %d bytes for a VM, want %d at most", each, maxLive)
	}
	runtime.KeepAlive(objects)
	runtime.KeepAlive(texts)
}

// live returns the bytes that are in use.
func live() uint64 {
	runtime.GC()
	runtime.GC() // also of what finalizers have held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// newCached returns a function that decodes an object, and does with it what its cache does.
func newCached(t *testing.T) func(text []byte) any {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	transforms := map[schema.GroupVersionKind]func(any) (any, error){}
	for object, options := range caches().ByObject {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			t.Fatal(err)
		}
		transforms[kind] = options.Transform
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	return func(text []byte) any {
		object, kind, err := decoder.Decode(text, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		trimmed, err := transforms[*kind](object)
		if err != nil {
			t.Fatal(err)
		}
		return trimmed
	}
}

// running returns the objects of a VM that runs, as the API server has them.
func running(t *testing.T, i int) []client.Object {
	t.Helper()
	meta := func(kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("%s-%d", kind, i), UID: types.UID(fmt.Sprintf("30b2c6f0-6b0e-4b6e-8f0c-%012d", i)),
			ResourceVersion: fmt.Sprint(100000 + i), Generation: 1, CreationTimestamp: metav1.Now(),
			Labels:        map[string]string{"app": "web", "kubevirt.io/domain": fmt.Sprintf("web-%d", i)},
			Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: strings.Repeat("x", 2000)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
		}
	}
	memory, always := resource.MustParse("1Gi"), kubevirt.RunStrategyAlways
	disk := func(name string) kubevirt.Disk {
		return kubevirt.Disk{Name: name, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: "virtio"}}}
	}
	spec := kubevirt.VirtualMachineInstanceSpec{
		Domain: kubevirt.DomainSpec{
			CPU: &kubevirt.CPU{Cores: 2}, Memory: &kubevirt.Memory{Guest: &memory},
			Firmware: &kubevirt.Firmware{UUID: types.UID(fmt.Sprintf("5d307ca9-b3ef-428c-8861-%012d", i))},
			Devices: kubevirt.Devices{
				Disks: []kubevirt.Disk{disk("root"), disk("seed")},
				Interfaces: []kubevirt.Interface{{
					Name: "default", InterfaceBindingMethod: kubevirt.InterfaceBindingMethod{Masquerade: new(kubevirt.InterfaceMasquerade)},
				}},
			},
		},
		Networks: []kubevirt.Network{{Name: "default", NetworkSource: kubevirt.NetworkSource{Pod: new(kubevirt.PodNetwork)}}},
		Volumes: []kubevirt.Volume{
			{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "registry.example.com/guest:1"}}},
			{Name: "seed", VolumeSource: kubevirt.VolumeSource{
				CloudInitNoCloud: &kubevirt.CloudInitNoCloudSource{UserData: "#cloud-config\npackages: [nginx]\n"}}},
		},
	}
	vm := &kubevirt.VirtualMachine{ObjectMeta: meta("vm"), Spec: kubevirt.VirtualMachineSpec{
		RunStrategy: &always, Template: &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: spec},
	}}
	vm.SetGroupVersionKind(kubevirt.VirtualMachineGroupVersionKind)
	vm.Status = kubevirt.VirtualMachineStatus{
		Created: true, Ready: true, PrintableStatus: kubevirt.VirtualMachineStatusRunning, RunStrategy: always,
		ObservedGeneration: 1, DesiredGeneration: 1,
		VolumeSnapshotStatuses: []kubevirt.VolumeSnapshotStatus{
			{Name: "root", Reason: "Snapshot is not supported for this volumeSource type [root]"},
			{Name: "seed", Reason: "Snapshot is not supported for this volumeSource type [seed]"},
		},
		Conditions: []kubevirt.VirtualMachineCondition{{Type: kubevirt.VirtualMachineReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
	}
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: meta("vmi"), Spec: spec}
	vmi.SetGroupVersionKind(kubevirt.VirtualMachineInstanceGroupVersionKind)
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirt.VirtualMachineGroupVersionKind)}
	vmi.Status = kubevirt.VirtualMachineInstanceStatus{
		Phase: kubevirt.Running, NodeName: "node-1", ActivePods: map[types.UID]string{vm.UID: "node-1"},
		Interfaces: []kubevirt.VirtualMachineInstanceNetworkInterface{{Name: "default", IP: "10.0.0.1", IPs: []string{"10.0.0.1"}}},
		Conditions: []kubevirt.VirtualMachineInstanceCondition{
			{Type: kubevirt.VirtualMachineInstanceReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: kubevirt.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		},
	}
	made, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm"})
	if err != nil {
		t.Fatal(err)
	}
	made.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	made.UID, made.ResourceVersion = vm.UID, vm.ResourceVersion
	made.Spec.NodeName = "node-1"
	made.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, QOSClass: corev1.PodQOSBurstable,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Container, Image: "registry.example.com/guest:1", ContainerID: "containerd://" + strings.Repeat("f", 64),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		},
	}
	return []client.Object{vm, vmi, made}
}
