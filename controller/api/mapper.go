package api

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nodevirt/nodevirt/controller/foreign"
	"github.com/nodevirt/nodevirt/controller/kinds"
)

// clusterScoped returns the names of the kinds whose objects are in no namespace.
func clusterScoped() sets.Set[string] {
	all := sets.New("CSIDriver", "CSINode", "ComponentStatus", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		"MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume", "RuntimeClass",
		"SelfSubjectAccessReview", "SelfSubjectRulesReview", "StorageClass", "SubjectAccessReview",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
		"VolumeAttachment", "VolumeAttributesClass")
	for _, k := range kinds.All() {
		if k.CRD.ClusterScoped {
			all.Insert(k.Name())
		}
	}
	return all
}

// NewMapper returns the resources of a scheme's kinds, and of those that the
// controller reads without their types. It does not ask the API
// server, which does not know every kind yet when it has just started: the
// controller would exit.
func NewMapper(scheme *runtime.Scheme) meta.RESTMapper {
	root := clusterScoped()
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		if kind.Version == runtime.APIVersionInternal || strings.HasSuffix(kind.Kind, "List") {
			continue
		}
		scope := meta.RESTScopeNamespace
		if root.Has(kind.Kind) {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	for _, k := range foreign.Kinds() {
		version := k.GroupVersion()
		mapper.AddSpecific(k.GroupVersionKind, version.WithResource(k.Plural), version.WithResource(k.Singular), meta.RESTScopeNamespace)
	}
	return mapper
}
