package api

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// clusterScoped tells of a kind whether its objects are in no namespace.
func clusterScoped(kind string) bool {
	switch kind {
	case "ComponentStatus", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		"MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume", "RuntimeClass",
		"SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"ValidatingWebhookConfiguration", "VirtualMachineClusterInstancetype",
		"VirtualMachineClusterPreference":
		return true
	}
	return false
}

// NewMapper returns the resources of a scheme's kinds. It asks no API server: one
// that has just started does not know each kind yet, and the controller would end
// for that.
func NewMapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		if kind.Version == runtime.APIVersionInternal || strings.HasSuffix(kind.Kind, "List") {
			continue
		}
		scope := meta.RESTScopeNamespace
		if clusterScoped(kind.Kind) {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	return mapper
}
