// Package foreign lists the kinds of other projects that the controller reads without their types. A cluster may not have
// them.
package foreign

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Kind is a kind whose objects are in namespaces, and its resource: of many, and of one.
type Kind struct {
	schema.GroupVersionKind
	Plural, Singular string
}

// Network is the kind of the objects that describe networks of Multus.
func Network() Kind {
	version := schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}
	return Kind{version.WithKind("NetworkAttachmentDefinition"), "network-attachment-definitions", "network-attachment-definition"}
}

// VolumeSnapshot is the kind of the snapshots that CSI drivers take of PVCs.
func VolumeSnapshot() Kind {
	version := schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}
	return Kind{version.WithKind("VolumeSnapshot"), "volumesnapshots", "volumesnapshot"}
}

// Kinds returns all of them.
func Kinds() []Kind {
	return []Kind{
		{cdi.SchemeGroupVersion.WithKind("DataVolume"), "datavolumes", "datavolume"},
		{cdi.SchemeGroupVersion.WithKind(cdi.DataVolumeDataSource), "datasources", "datasource"},
		Network(),
		VolumeSnapshot(),
	}
}

// Has reports whether a kind is one of them.
func Has(kind schema.GroupVersionKind) bool {
	return slices.ContainsFunc(Kinds(), func(k Kind) bool { return k.GroupVersionKind == kind })
}
