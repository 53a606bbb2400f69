package pod

import (
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// agentPing is the command by which a node asks the guest's agent for a sign of
// life, and runs nothing in the guest.
const agentPing = "nodevirt.io/ping"

// probe is the instance's, word for word: HTTP and TCP reach the guest at the
// pod's IP, and a command runs in it by its agent, whom the node asks for a ping.
func probe(p *kubevirt.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	handler := corev1.ProbeHandler{Exec: p.Exec, HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket}
	if p.GuestAgentPing != nil {
		handler.Exec = &corev1.ExecAction{Command: []string{agentPing}}
	}
	return &corev1.Probe{
		ProbeHandler:        handler,
		InitialDelaySeconds: p.InitialDelaySeconds,
		TimeoutSeconds:      p.TimeoutSeconds,
		PeriodSeconds:       p.PeriodSeconds,
		SuccessThreshold:    p.SuccessThreshold,
		FailureThreshold:    p.FailureThreshold,
	}
}
