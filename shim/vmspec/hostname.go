package vmspec

import (
	"regexp"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxLabel is the length of a DNS label (RFC 1035, 2.3.4).
const maxLabel = 63

var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// hostname is the sandbox's host name as one DNS label: the kubelet sends a
// full name for pods with setHostnameAsFQDN, and none where the pod has no
// network of its own.
func hostname(sandbox *runtimeapi.PodSandboxConfig) string {
	for _, name := range []string{sandbox.GetHostname(), sandbox.GetMetadata().GetName()} {
		first, _, _ := strings.Cut(strings.ToLower(name), ".")
		label := strings.Trim(notInLabel.ReplaceAllString(first, "-"), "-")
		if label != "" {
			return strings.TrimRight(label[:min(len(label), maxLabel)], "-")
		}
	}
	return "vm"
}

// instanceID tells cloud-init whether this is the instance that it has set up
// before. As with KubeVirt it is the name, so that a disk which outlives its
// pod is not set up twice.
func instanceID(m *runtimeapi.PodSandboxMetadata) string {
	if m.GetName() == "" {
		return m.GetUid()
	}
	return strings.TrimSuffix(m.GetName()+"."+m.GetNamespace(), ".")
}
