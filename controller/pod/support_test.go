package pod_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

func resourcesOf(requestCPU, requestMemory, limitCPU, limitMemory string) kubevirt.ResourceRequirementsWithoutClaims {
	list := func(cpu, memory string) corev1.ResourceList {
		all := corev1.ResourceList{}
		if cpu != "" {
			all[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			all[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return all
	}
	return kubevirt.ResourceRequirementsWithoutClaims{Requests: list(requestCPU, requestMemory), Limits: list(limitCPU, limitMemory)}
}

// TestSupport: what the KubeVirt object says of a kind of containers replaces what they have otherwise, quantity by quantity.
func TestSupport(t *testing.T) {
	before := resourcesOf("10m", "16Mi", "100m", "80Mi")
	given := corev1.ResourceRequirements{Requests: before.Requests, Limits: before.Limits}
	for name, tt := range map[string]struct {
		says, want kubevirt.ResourceRequirementsWithoutClaims
	}{
		"nothing":           {resourcesOf("", "", "", ""), before},
		"all":               {resourcesOf("1", "1Gi", "2", "2Gi"), resourcesOf("1", "1Gi", "2", "2Gi")},
		"no limit":          {resourcesOf("", "", "0", ""), resourcesOf("10m", "16Mi", "", "80Mi")},
		"below the request": {resourcesOf("", "", "5m", "8Mi"), resourcesOf("5m", "8Mi", "5m", "8Mi")},
		"not valid":         {resourcesOf("2", "", "1", ""), resourcesOf("2", "16Mi", "1", "80Mi")},
		"above the limit":   {resourcesOf("", "1Gi", "", ""), resourcesOf("10m", "1Gi", "100m", "1Gi")},
	} {
		t.Run(name, func(t *testing.T) {
			all := []kubevirt.SupportContainerResources{
				{Type: kubevirt.SideCar, Resources: resourcesOf("7", "7Gi", "7", "7Gi")},
				{Type: kubevirt.HotplugAttachment, Resources: tt.says},
			}
			got := pod.Support(kubevirt.HotplugAttachment, all, given)
			if diff := cmp.Diff(corev1.ResourceRequirements{Requests: tt.want.Requests, Limits: tt.want.Limits}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	assert.DeepEqual(t, before, resourcesOf("10m", "16Mi", "100m", "80Mi")) // is not changed
}

// TestSupportOfAttachments: attachment pods have what the KubeVirt object says.
func TestSupportOfAttachments(t *testing.T) {
	want := resourcesOf("50m", "20Mi", "50m", "20Mi")
	from := holder
	from.Support = func() []kubevirt.SupportContainerResources {
		return []kubevirt.SupportContainerResources{{Type: kubevirt.HotplugAttachment, Resources: want}}
	}
	p, err := pod.Attachment(read(t, "pvcs"), launcher(), "late", pvcObjects(t), from)
	assert.NilError(t, err)
	assert.DeepEqual(t, p.Spec.Containers[0].Resources, corev1.ResourceRequirements{Requests: want.Requests, Limits: want.Limits})
}
