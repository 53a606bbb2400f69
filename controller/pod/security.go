package pod

import corev1 "k8s.io/api/core/v1"

// user is QEMU's user ID in KubeVirt's images. The node gives each VM a separate
// user ID; this one is for the kubelet, which considers the user of an image that is
// made FROM scratch to be root.
const user = 107

// podSecurity and containerSecurity are what Pod Security's level "restricted"
// wants. Nothing of it is the guest's.
func podSecurity() *corev1.PodSecurityContext {
	yes, uid := true, int64(user)
	return &corev1.PodSecurityContext{
		RunAsNonRoot:   &yes,
		RunAsUser:      &uid,
		RunAsGroup:     &uid,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func containerSecurity() *corev1.SecurityContext {
	no := false
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
