package preset

import (
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/kind"
)

// Kind describes VirtualMachineInstancePresets. They have no reconciler: admission
// reads them.
func Kind() kind.Kind {
	return kind.Kind{
		Version: kubevirt.SchemeGroupVersion,
		Older:   "v1alpha3",
		Object:  func() client.Object { return new(kubevirt.VirtualMachineInstancePreset) },
		List:    func() client.ObjectList { return new(kubevirt.VirtualMachineInstancePresetList) },
		CRD: kind.CRD{
			ShortNames: []string{"vmipreset", "vmipresets"},
			Deprecated: "kubevirt.io/v1 VirtualMachineInstancePresets are deprecated; use instance types and preferences",
		},
		Access:    kind.Access{Object: []string{"list"}},
		Admission: rules(),
	}
}
