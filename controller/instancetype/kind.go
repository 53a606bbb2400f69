package instancetype

import (
	instancetype "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/kind"
)

// TypeKind describes VirtualMachineInstancetypes.
func TypeKind() kind.Kind {
	return kind.Kind{
		Version: instancetype.SchemeGroupVersion,
		Object:  func() client.Object { return new(instancetype.VirtualMachineInstancetype) },
		List:    func() client.ObjectList { return new(instancetype.VirtualMachineInstancetypeList) },
		CRD: kind.CRD{
			ShortNames: []string{"vminstancetype", "vminstancetypes", "vmf", "vmfs"},
		},
		Access:    read(),
		Admission: rulesOfTypes(),
		Fields:    []kind.FieldList{{Name: "instancetypes", Fields: SupportedOfTypes(), Check: kind.Checked(CheckType)}},
	}
}

// ClusterTypeKind describes VirtualMachineClusterInstancetypes.
func ClusterTypeKind() kind.Kind {
	return kind.Kind{
		Version: instancetype.SchemeGroupVersion,
		Object:  func() client.Object { return new(instancetype.VirtualMachineClusterInstancetype) },
		List:    func() client.ObjectList { return new(instancetype.VirtualMachineClusterInstancetypeList) },
		CRD: kind.CRD{
			ShortNames:    []string{"vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"},
			ClusterScoped: true,
		},
		Access:    read(),
		Admission: rulesOfTypes(),
	}
}

// PreferenceKind describes VirtualMachinePreferences.
func PreferenceKind() kind.Kind {
	return kind.Kind{
		Version: instancetype.SchemeGroupVersion,
		Object:  func() client.Object { return new(instancetype.VirtualMachinePreference) },
		List:    func() client.ObjectList { return new(instancetype.VirtualMachinePreferenceList) },
		CRD: kind.CRD{
			ShortNames: []string{"vmpref", "vmprefs", "vmp", "vmps"},
		},
		Access:    read(),
		Admission: rulesOfPreferences(),
		Fields: []kind.FieldList{
			{Name: "preferences", Fields: SupportedOfPreferences(), Check: kind.Checked(CheckPreference)},
		},
	}
}

// ClusterPreferenceKind describes VirtualMachineClusterPreferences.
func ClusterPreferenceKind() kind.Kind {
	return kind.Kind{
		Version: instancetype.SchemeGroupVersion,
		Object:  func() client.Object { return new(instancetype.VirtualMachineClusterPreference) },
		List:    func() client.ObjectList { return new(instancetype.VirtualMachineClusterPreferenceList) },
		CRD: kind.CRD{
			ShortNames:    []string{"vmcp", "vmcps"},
			ClusterScoped: true,
		},
		Access:    read(),
		Admission: rulesOfPreferences(),
	}
}

func read() kind.Access { return kind.Access{Object: []string{"get", "list", "watch"}} }
