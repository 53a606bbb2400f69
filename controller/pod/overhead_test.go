package pod_test

import (
	"encoding/json"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestOverhead: a pod's limit and request have what its QEMU may need beyond the RuntimeClass's overhead, the node learns
// that it is not the guest's, and a pod that grows keeps it.
func TestOverhead(t *testing.T) {
	class := pod.Surroundings{Overhead: new(int64(96 << 20))}
	emulates := class
	emulates.Config = config.Config{Given: kubevirt.KubeVirtConfiguration{DeveloperConfiguration: &kubevirt.DeveloperConfiguration{UseEmulation: true}}}
	doubled := class
	doubled.Config = config.Config{Given: kubevirt.KubeVirtConfiguration{AdditionalGuestMemoryOverheadRatio: new("2.5")}}
	none := pod.Surroundings{Overhead: new(int64)}
	grows := func(memory, most string) func(d *kubevirt.DomainSpec) {
		return func(d *kubevirt.DomainSpec) {
			d.CPU = &kubevirt.CPU{Sockets: 1, MaxSockets: 4}
			d.Memory = &kubevirt.Memory{Guest: new(resource.MustParse(memory)), MaxGuest: new(resource.MustParse(most))}
		}
	}
	limited := func(d *kubevirt.DomainSpec) {
		d.Memory = nil
		d.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("64Gi")}
		d.Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("32Gi")}
	}
	for name, tt := range map[string]struct {
		around                pod.Surroundings
		change                func(d *kubevirt.DomainSpec)
		request, limit, added string // empty for none
	}{
		"a small VM":                      {class, nil, "128Mi", "", ""},
		"no RuntimeClass":                 {pod.Surroundings{}, grows("192Mi", "64Gi"), "192Mi", "192Mi", ""},
		"a RuntimeClass without overhead": {none, nil, "173Mi", "", "45Mi"},
		"a small VM, emulated":            {emulates, nil, "128Mi", "", ""},
		"a small VM, and a ratio":         {doubled, nil, "144Mi", "", "16Mi"},
		"one that grows":                  {class, grows("192Mi", "1Gi"), "192Mi", "192Mi", ""},
		"one that grows, emulated":        {emulates, grows("192Mi", "1Gi"), "230Mi", "230Mi", "38Mi"},
		"one that grows much":             {class, grows("192Mi", "64Gi"), "402Mi", "402Mi", "210Mi"},
		"own limits":                      {class, limited, "32844Mi", "65612Mi", "76Mi"},
		"huge pages have few page tables": {class, func(d *kubevirt.DomainSpec) {
			d.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("64Gi")), Hugepages: &kubevirt.Hugepages{PageSize: "2Mi"}}
		}, "1Mi", "", ""},
		"a reservation of the VM's own": {emulates, func(d *kubevirt.DomainSpec) {
			d.Memory.ReservedOverhead = &kubevirt.ReservedOverhead{AddedOverhead: new(resource.MustParse("10Mi"))}
		}, "138Mi", "", "10Mi"},
		"no request of what is not the VM's": {emulates, func(d *kubevirt.DomainSpec) { d.Resources.OvercommitGuestOverhead = true }, "32Mi", "", ""},
	} {
		vmi := read(t, "least")
		if tt.change != nil {
			tt.change(&vmi.Spec.Domain)
		}
		before := vmi.DeepCopy()
		p, err := pod.New(vmi, nil, nil, pod.Options{RuntimeClass: "vm", Surroundings: tt.around})
		assert.NilError(t, err, name)
		assert.DeepEqual(t, before, vmi)
		var made kubevirt.VirtualMachineInstanceSpec
		assert.NilError(t, json.Unmarshal([]byte(p.Annotations[vmspec.AnnotationVMI]), &made))
		added := ""
		if m := made.Domain.Memory; m != nil && m.ReservedOverhead != nil {
			added = m.ReservedOverhead.AddedOverhead.String()
		}
		r := p.Spec.Containers[0].Resources
		text := func(list corev1.ResourceList) string {
			if q, has := list[corev1.ResourceMemory]; has {
				return q.String()
			}
			return ""
		}
		if request, limit := text(r.Requests), text(r.Limits); request != tt.request || limit != tt.limit || added != tt.added {
			t.Errorf("%s: request %s, limit %q, added %q; want %s, %q, %q", name, request, limit, added, tt.request, tt.limit, tt.added)
		}
		if now := pod.SizeIn(&vmi.Spec, p, r.Limits); now != pod.Wanted(&vmi.Spec) {
			t.Errorf("%s: the guest has %+v, and wants %+v", name, now, pod.Wanted(&vmi.Spec))
		}
	}
}
