package main

import apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// kind is what a CRD has beside the types: all of it is KubeVirt's, since people
// and programs go by it.
type kind struct {
	name       string
	shortNames []string
	columns    []apiext.CustomResourceColumnDefinition
	scale      *apiext.CustomResourceSubresourceScale
	// cluster tells that objects are in no namespace.
	cluster bool
	// deprecated is the warning of a kind that people should use no more; such have
	// no status.
	deprecated string
}

func apis() []api {
	return []api{
		{
			types: "kubevirt.io/api/core/v1", group: "kubevirt.io", older: "v1alpha3", status: true,
			kinds: machines(),
		},
		{
			types: "kubevirt.io/api/instancetype/v1beta1", group: "instancetype.kubevirt.io",
			kinds: []kind{
				{name: "VirtualMachineInstancetype", shortNames: []string{"vminstancetype", "vminstancetypes", "vmf", "vmfs"}},
				{
					name:       "VirtualMachineClusterInstancetype",
					shortNames: []string{"vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"}, cluster: true,
				},
				{name: "VirtualMachinePreference", shortNames: []string{"vmpref", "vmprefs", "vmp", "vmps"}},
				{name: "VirtualMachineClusterPreference", shortNames: []string{"vmcp", "vmcps"}, cluster: true},
			},
		},
	}
}

func machines() []kind {
	labelSelector := ".status.labelSelector"
	return []kind{
		{
			name:       "VirtualMachine",
			shortNames: []string{"vm", "vms"},
			columns: []apiext.CustomResourceColumnDefinition{
				age,
				{Name: "Status", Type: "string", JSONPath: ".status.printableStatus", Description: "Human Readable Status"},
				ready,
			},
		},
		{
			name:       "VirtualMachineInstance",
			shortNames: []string{"vmi", "vmis"},
			columns: []apiext.CustomResourceColumnDefinition{
				age,
				{Name: "Phase", Type: "string", JSONPath: ".status.phase"},
				{Name: "IP", Type: "string", JSONPath: ".status.interfaces[0].ipAddress"},
				{Name: "NodeName", Type: "string", JSONPath: ".status.nodeName"},
				ready,
				condition("Live-Migratable", "LiveMigratable", 1),
				condition("Paused", "Paused", 1),
			},
		},
		{
			name:       "VirtualMachineInstanceReplicaSet",
			shortNames: []string{"vmirs", "vmirss"},
			columns: []apiext.CustomResourceColumnDefinition{
				{
					Name: "Desired", Type: "integer", JSONPath: ".spec.replicas",
					Description: "Number of desired VirtualMachineInstances",
				},
				{
					Name: "Current", Type: "integer", JSONPath: ".status.replicas",
					Description: "Number of managed and not final or deleted VirtualMachineInstances",
				},
				{
					Name: "Ready", Type: "integer", JSONPath: ".status.readyReplicas",
					Description: "Number of managed VirtualMachineInstances which are ready to receive traffic",
				},
				age,
			},
			scale: &apiext.CustomResourceSubresourceScale{
				SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
				LabelSelectorPath: &labelSelector,
			},
		},
		{
			name:       "VirtualMachineInstancePreset",
			shortNames: []string{"vmipreset", "vmipresets"},
			deprecated: "kubevirt.io/v1 VirtualMachineInstancePresets are deprecated; use instance types and preferences",
		},
	}
}

var (
	age   = apiext.CustomResourceColumnDefinition{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}
	ready = condition("Ready", "Ready", 0)
)

// condition is a column with the status of a condition; those of priority 1 are
// for kubectl get -o wide.
func condition(name, of string, priority int32) apiext.CustomResourceColumnDefinition {
	return apiext.CustomResourceColumnDefinition{
		Name: name, Type: "string", Priority: priority,
		JSONPath: ".status.conditions[?(@.type=='" + of + "')].status",
	}
}
