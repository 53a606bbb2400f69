package pod

import corev1 "k8s.io/api/core/v1"

// User is QEMU's user ID in KubeVirt's images. The node gives each VM a separate
// user ID; this one is for the kubelet, which considers the user of an image that is
// made FROM scratch to be root.
const User = 107

// Restricted and [RestrictedContainer] return what Pod Security's level "restricted" wants of a
// pod and of its containers. Nothing of it is a guest's.
func Restricted() *corev1.PodSecurityContext {
	yes, uid := true, int64(User)
	return &corev1.PodSecurityContext{
		RunAsNonRoot:   &yes,
		RunAsUser:      &uid,
		RunAsGroup:     &uid,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// RestrictedContainer returns the part of containers; see [Restricted].
func RestrictedContainer() *corev1.SecurityContext {
	no := false
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
