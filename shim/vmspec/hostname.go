package vmspec

import (
	"regexp"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// maxLabel is the length of a DNS label (RFC 1035, 2.3.4).
const maxLabel = fields.MaxLabel

var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// hostname returns the sandbox's host name as one DNS label. The kubelet sends a
// full name for pods with setHostnameAsFQDN, and none for pods on the node's network.
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

// InstanceID returns cloud-init's instance ID, by which cloud-init recognizes an
// instance that it has set up before. As in KubeVirt it is the pod's name, so that
// cloud-init does not set up a disk again that outlives its pod.
func InstanceID(m *runtimeapi.PodSandboxMetadata) string {
	if m.GetName() == "" {
		return m.GetUid()
	}
	return strings.TrimSuffix(m.GetName()+"."+m.GetNamespace(), ".")
}
