package pod_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestSurroundings makes pods in namespaces with quotas, and without the overhead of their RuntimeClass.
func TestSurroundings(t *testing.T) {
	quota := pod.Surroundings{LimitCPU: true, MemoryRatio: 1.5}
	configured := pod.Surroundings{Config: config.Config{Given: kubevirt.KubeVirtConfiguration{
		DeveloperConfiguration: &kubevirt.DeveloperConfiguration{CPUAllocationRatio: 2, MemoryOvercommit: 200},
	}}}
	reserved := func(added string) func(d *kubevirt.DomainSpec) {
		return func(d *kubevirt.DomainSpec) {
			d.Memory.ReservedOverhead = &kubevirt.ReservedOverhead{AddedOverhead: new(resource.MustParse(added))}
		}
	}
	pages := func(d *kubevirt.DomainSpec) { d.Memory.Hugepages = &kubevirt.Hugepages{PageSize: "2Mi"} }
	for name, tt := range map[string]struct {
		around pod.Surroundings
		change func(d *kubevirt.DomainSpec)
		want   string
	}{
		"no quota":   {want: `{"requests":{"cpu":"100m","memory":"128Mi"}}`},
		"configured": {configured, nil, `{"requests":{"cpu":"500m","memory":"64Mi"}}`},
		"quota":      {quota, nil, `{"limits":{"cpu":"1","memory":"192Mi"},"requests":{"cpu":"100m","memory":"128Mi"}}`},
		"CPU's only": {pod.Surroundings{LimitCPU: true}, nil, `{"limits":{"cpu":"1"},"requests":{"cpu":"100m","memory":"128Mi"}}`},
		"own limits": {quota, func(d *kubevirt.DomainSpec) {
			d.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("130Mi")}
		}, `{"limits":{"cpu":"2","memory":"130Mi"}}`},
		"a request below the guest's memory": {quota, func(d *kubevirt.DomainSpec) {
			d.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("64Mi")}
		}, `{"limits":{"cpu":"1","memory":"128Mi"},"requests":{"cpu":"100m","memory":"64Mi"}}`},
		"huge pages": {quota, pages,
			`{"limits":{"cpu":"1","hugepages-2Mi":"128Mi","memory":"1536Ki"},"requests":{"cpu":"100m","hugepages-2Mi":"128Mi","memory":"1Mi"}}`},
		"dedicated": {quota, func(d *kubevirt.DomainSpec) { d.CPU = &kubevirt.CPU{Cores: 2, DedicatedCPUPlacement: true} },
			`{"limits":{"cpu":"2","memory":"128Mi"},"requests":{"cpu":"2","memory":"128Mi"}}`},
		"VSOCK": {change: func(d *kubevirt.DomainSpec) { d.Devices.AutoattachVSOCK = new(true) },
			want: `{"limits":{"devices.kubevirt.io/vhost-vsock":"1"},"requests":{"cpu":"100m","devices.kubevirt.io/vhost-vsock":"1","memory":"128Mi"}}`},
		"reserved overhead": {quota, reserved("64Mi"), `{"limits":{"cpu":"1","memory":"256Mi"},"requests":{"cpu":"100m","memory":"192Mi"}}`},
		"reserved overhead with own limits": {change: func(d *kubevirt.DomainSpec) {
			reserved("64Mi")(d)
			d.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("130Mi")}
		}, want: `{"limits":{"cpu":"2","memory":"194Mi"}}`},
		"no overhead": {pod.Surroundings{Overhead: new(int64(96 << 20))}, func(d *kubevirt.DomainSpec) { d.Resources.OvercommitGuestOverhead = true },
			`{"requests":{"cpu":"100m","memory":"32Mi"}}`},
		"overhead above the guest's memory": {pod.Surroundings{Overhead: new(int64(1 << 30))}, func(d *kubevirt.DomainSpec) { d.Resources.OvercommitGuestOverhead = true },
			`{"requests":{"cpu":"100m","memory":"1Mi"}}`},
	} {
		vmi := read(t, "least")
		if tt.change != nil {
			tt.change(&vmi.Spec.Domain)
		}
		p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm", Surroundings: tt.around})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := json.Marshal(p.Spec.Containers[0].Resources)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tt.want)
		}
	}
}
