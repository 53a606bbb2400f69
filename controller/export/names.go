package export

import (
	"strings"

	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
)

const (
	// prefix begins the names of an export's pod and Service, prefixToken that of a token's Secret,
	// prefixCA that of the ConfigMap in manifests. labelService selects the pod. All are KubeVirt's.
	prefix       = "virt-export-"
	prefixToken  = "export-token-"
	prefixCA     = "export-ca-cm-"
	labelService = "kubevirt.io.virt-export-service"
	// maxName is the length of the name of most objects.
	maxName = 253
)

// fit returns a name, or one that begins as it does and has at most limit characters.
func fit(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	return pod.UniqueName(name, limit, name)
}

// podName returns KubeVirt's name of the export's one pod.
func podName(e *vmExport) string { return fit(prefix+e.Name, fields.MaxLabel) }

// serviceName returns KubeVirt's name of an export's Service, which has no dots.
func serviceName(e *vmExport) string {
	return fit(prefix+strings.ReplaceAll(e.Name, ".", "-"), fields.MaxLabel)
}

// given returns the labels or annotations that an export passes on to its pod. Those of
// Kubernetes, Multus, KubeVirt and nodevirt have a meaning there.
func given(all map[string]string) map[string]string {
	passed := map[string]string{}
	for key, value := range all {
		domain, _, qualified := strings.Cut(key, "/")
		reserved := strings.HasPrefix(key, "kubevirt.io")
		for _, of := range []string{"kubevirt.io", "nodevirt.io", "kubernetes.io", "k8s.io", "cncf.io"} {
			reserved = reserved || qualified && (domain == of || strings.HasSuffix(domain, "."+of))
		}
		if !reserved {
			passed[key] = value
		}
	}
	return passed
}

func labels(e *vmExport) map[string]string {
	all := given(e.Labels)
	all[kubevirt.AppLabel] = api.App
	return all
}

func selector(e *vmExport) map[string]string {
	return map[string]string{labelService: fit(e.Name, fields.MaxLabel)}
}
