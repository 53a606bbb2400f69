package badinput

import (
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// annotated gives a pod an annotation.
func annotated(key, value string) func(*runtimeapi.PodSandboxConfig) {
	return func(p *runtimeapi.PodSandboxConfig) { p.Annotations = map[string]string{key: value} }
}

// hostNetwork is a pod of the node's network, and with that of the node's host name.
func hostNetwork(p *runtimeapi.PodSandboxConfig) {
	p.Hostname = ""
	p.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}
}

// podCases are wrong whatever container comes.
func podCases() []badCase {
	return []badCase{
		{
			name: "host network",
			pod: func(p *runtimeapi.PodSandboxConfig) {
				hostNetwork(p)
				annotated("nodevirt.io/vm-container", "vm")(p)
			},
			code: codes.InvalidArgument,
		},
		{
			name: "unknown annotation",
			pod:  annotated("nodevirt.io/vm", "{}"),
			code: codes.InvalidArgument,
		},
		{
			name: "no container's name",
			pod:  annotated("nodevirt.io/vm-container", "../vm"),
			code: codes.InvalidArgument,
		},
		{
			name: "meta data that is no mapping",
			pod:  annotated("nodevirt.io/cloud-init-meta-data", "- a"),
			code: codes.InvalidArgument,
		},
		{
			name: "no key",
			pod:  annotated("nodevirt.io/ssh-authorized-keys", "hunter2"),
			code: codes.InvalidArgument,
		},
	}
}
