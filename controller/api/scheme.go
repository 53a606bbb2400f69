// Package api owns which API objects the controller knows, and under which
// versions. It leaves what they mean to the packages that use them.
package api

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodevirt/nodevirt/controller/kinds"
)

// NewScheme returns a scheme of all objects that the controller reads or
// writes. It lists them group by group: client-go's scheme of all groups is
// some megabytes that each replica would hold for nothing.
//
// KubeVirt's objects are there as kubevirt.io/v1 alone: an object of v1alpha3
// has the same fields, and the API server converts it by renaming its version.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme,
		authorizationv1.AddToScheme,
		coordinationv1.AddToScheme,
		corev1.AddToScheme,
		eventsv1.AddToScheme,
		nodev1.AddToScheme,
		policyv1.AddToScheme,
		storagev1.AddToScheme,
		addRevisions,
		addIngresses,
		addKinds,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make the scheme: %w", err)
		}
	}
	return scheme, nil
}

// addKinds adds KubeVirt's kinds that the controller owns.
func addKinds(scheme *runtime.Scheme) error {
	for _, k := range kinds.All() {
		scheme.AddKnownTypes(k.Version, k.Object(), k.List())
		metav1.AddToGroupVersion(scheme, k.Version)
	}
	return nil
}

// addRevisions adds the one kind of Kubernetes' group apps that the controller uses.
func addRevisions(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(appsv1.SchemeGroupVersion, new(appsv1.ControllerRevision), new(appsv1.ControllerRevisionList))
	metav1.AddToGroupVersion(scheme, appsv1.SchemeGroupVersion)
	return nil
}

// addIngresses adds the one kind of Kubernetes' group networking.k8s.io that the controller reads.
func addIngresses(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(networkingv1.SchemeGroupVersion, new(networkingv1.Ingress), new(networkingv1.IngressList))
	metav1.AddToGroupVersion(scheme, networkingv1.SchemeGroupVersion)
	return nil
}
