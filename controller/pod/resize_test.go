package pod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"
)

// resizable is an instance of so many sockets of 2 cores, of at most 4, and so much memory, of at most 4 GiB.
func resizable(sockets uint32, memory string) *kubevirt.VirtualMachineInstanceSpec {
	return &kubevirt.VirtualMachineInstanceSpec{Domain: kubevirt.DomainSpec{
		CPU:    &kubevirt.CPU{Sockets: sockets, Cores: 2, MaxSockets: 4},
		Memory: &kubevirt.Memory{Guest: new(resource.MustParse(memory)), MaxGuest: new(resource.MustParse("4Gi"))},
	}}
}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// TestResize: the pod of a VM with maximums has limits of its size, which grow with the spec.
func TestResize(t *testing.T) {
	first := resources(resizable(1, "1Gi"), Surroundings{})
	if diff := cmp.Diff(corev1.ResourceRequirements{Limits: list("2", "1Gi"), Requests: list("200m", "1Gi")}, first); diff != "" {
		t.Fatal(diff)
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "other"}, {Name: Container, Resources: first}}}}
	if _, changed := Resize(p, resizable(1, "1Gi")); changed {
		t.Error("a pod of the right size is resized")
	}
	got, changed := Resize(p, resizable(3, "2Gi"))
	if diff := cmp.Diff(corev1.ResourceRequirements{Limits: list("6", "2Gi"), Requests: list("600m", "2Gi")}, got); diff != "" || !changed {
		t.Errorf("changed %t\n%s", changed, diff)
	}
	if diff := cmp.Diff(list("2", "1Gi"), p.Spec.Containers[1].Resources.Limits); diff != "" {
		t.Errorf("the pod was changed:\n%s", diff)
	}
	p.Spec.Containers[1].Resources = corev1.ResourceRequirements{Limits: list("4", "3Gi"), Requests: list("2", "3Gi")}
	got, _ = Resize(p, resizable(3, "2Gi")) // an autoscaler has given it memory
	if diff := cmp.Diff(corev1.ResourceRequirements{Limits: list("6", "3Gi"), Requests: list("3", "3Gi")}, got); diff != "" {
		t.Error(diff)
	}
	p.Spec.Containers[1].Resources = corev1.ResourceRequirements{}
	if _, changed := Resize(p, resizable(3, "2Gi")); changed {
		t.Error("a pod without limits is resized: its node would not notice")
	}
}

// TestResizeWithReservedOverhead: what the instance reserves stays QEMU's.
func TestResizeWithReservedOverhead(t *testing.T) {
	of := func(memory string) *kubevirt.VirtualMachineInstanceSpec {
		s := resizable(1, memory)
		s.Domain.Memory.ReservedOverhead = &kubevirt.ReservedOverhead{AddedOverhead: new(resource.MustParse("256Mi"))}
		return s
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: Container, Resources: resources(of("1Gi"), Surroundings{})}}}}
	if got := SizeIn(of("1Gi"), p, p.Spec.Containers[0].Resources.Limits); got != (Size{1, 1 << 30}) {
		t.Errorf("its size is %+v", got)
	}
	if _, changed := Resize(p, of("1Gi")); changed {
		t.Error("a pod of the right size is resized")
	}
	got, _ := Resize(p, of("2Gi"))
	if diff := cmp.Diff(corev1.ResourceRequirements{Limits: list("2", "2304Mi"), Requests: list("200m", "2304Mi")}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSizeIn(t *testing.T) {
	for limits, want := range map[[2]string]Size{
		{"2", "1Gi"}: {1, 1 << 30}, {"5", "1536Mi"}: {2, 1536 << 20}, {"100", "1Ti"}: {4, 4 << 30}, {"100m", "1Gi"}: {1, 1 << 30},
	} {
		if got := SizeIn(resizable(1, "1Gi"), new(corev1.Pod), list(limits[0], limits[1])); got != want {
			t.Errorf("%v: %+v, want %+v", limits, got, want)
		}
	}
	plain := &kubevirt.VirtualMachineInstanceSpec{Domain: kubevirt.DomainSpec{Memory: &kubevirt.Memory{Guest: new(resource.MustParse("1Gi"))}}}
	if got := SizeIn(plain, new(corev1.Pod), list("2", "2Gi")); got != (Size{}) {
		t.Errorf("an instance without maximums: %+v", got)
	}
}
