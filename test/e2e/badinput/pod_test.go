package badinput

import (
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// annotated gives a pod an annotation.
func annotated(key, value string) func(*runtimeapi.PodSandboxConfig) {
	return func(p *runtimeapi.PodSandboxConfig) { p.Annotations = map[string]string{key: value} }
}

// podCases are wrong whatever container comes.
func podCases() []badCase {
	return []badCase{
		{
			name: "host network",
			pod: func(p *runtimeapi.PodSandboxConfig) {
				p.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{
					NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
				}
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
