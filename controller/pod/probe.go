package pod

import (
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// probe is the instance's, word for word: HTTP and TCP reach the guest at the
// pod's IP, and a command runs in it by its agent.
func probe(p *kubevirt.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	handler := corev1.ProbeHandler{Exec: p.Exec, HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket}
	return &corev1.Probe{
		ProbeHandler:        handler,
		InitialDelaySeconds: p.InitialDelaySeconds,
		TimeoutSeconds:      p.TimeoutSeconds,
		PeriodSeconds:       p.PeriodSeconds,
		SuccessThreshold:    p.SuccessThreshold,
		FailureThreshold:    p.FailureThreshold,
	}
}
