package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// PodFields returns the fields of a VMI's spec that a manifest may have beside
// those of [vmspec.Supported]. The controller puts them into the pod, and no node
// reads them.
func PodFields() fields.Supported {
	const host = "a probe goes to the VM's own address"
	all := fields.Supported{
		Rows: append(podRows(), vmspec.PodFields()...),
		Wholes: []fields.Whole{
			{Path: "nodeSelector", Is: "a map of labels", Check: LabelMap},
			{Path: "affinity", Is: "a Kubernetes affinity", Check: affinity},
			{Path: "topologySpreadConstraints[].labelSelector", Is: "a label selector", Check: LabelSelector},
		},
		Hints: map[string]string{},
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		for _, r := range probeRows() {
			all.Rows = append(all.Rows, fields.Row{Path: probe + "." + r.Path, Takes: r.Takes})
		}
		all.Hints[probe+".httpGet.host"] = host
		all.Hints[probe+".tcpSocket.host"] = host
	}
	return all
}

func podRows() []fields.Row {
	return []fields.Row{
		fields.At("domain.firmware.kernelBoot.container.imagePullPolicy", fields.OneOf(
			corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)),
		fields.At("domain.firmware.kernelBoot.container.imagePullSecret", fields.Subdomain),
		fields.At("priorityClassName", fields.Subdomain),
		fields.At("schedulerName", fields.Subdomain),
		fields.At("serviceAccountName", fields.Subdomain),
		fields.At("evictionStrategy", fields.OneOf(
			kubevirt.EvictionStrategyNone, kubevirt.EvictionStrategyLiveMigrate,
			kubevirt.EvictionStrategyLiveMigrateIfPossible, kubevirt.EvictionStrategyExternal)),
		fields.At("tolerations", fields.List(64)),
		fields.At("tolerations[].key", labelKey),
		fields.At("tolerations[].operator", fields.OneOf(corev1.TolerationOpExists, corev1.TolerationOpEqual)),
		fields.At("tolerations[].value", labelValue),
		fields.At("tolerations[].effect", fields.OneOf(
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)),
		fields.At("tolerations[].tolerationSeconds", fields.Integer(-1<<62, 1<<62)),
		fields.At("topologySpreadConstraints[].maxSkew", fields.Integer(1, 1<<31-1)),
		fields.At("topologySpreadConstraints[].minDomains", fields.Integer(1, 1<<31-1)),
		fields.At("topologySpreadConstraints[].topologyKey", labelKey),
		fields.At("topologySpreadConstraints[].whenUnsatisfiable", fields.OneOf(corev1.DoNotSchedule, corev1.ScheduleAnyway)),
		fields.At("topologySpreadConstraints[].nodeAffinityPolicy", fields.OneOf(
			corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)),
		fields.At("topologySpreadConstraints[].nodeTaintsPolicy", fields.OneOf(
			corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)),
		fields.At("topologySpreadConstraints[].matchLabelKeys[]", labelKey),
		fields.At("dnsPolicy", fields.OneOf(
			corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)),
		fields.At("dnsConfig.nameservers", fields.List(3)),
		fields.At("dnsConfig.nameservers[]", ipAddress),
		fields.At("dnsConfig.searches", fields.List(32)),
		fields.At("dnsConfig.searches[]", searchDomain),
		fields.At("dnsConfig.options[].name", fields.Match(`[!-~]+`, fields.MaxLabel)),
		fields.At("dnsConfig.options[].value", fields.Text(fields.MaxLabel)),
	}
}

// searchDomain takes what the API server takes in a pod: DNS labels, also with underscores, whose last dot may be there,
// and the root.
func searchDomain(at *field.Path, value any) *field.Error {
	return fields.String(func(at *field.Path, s string) *field.Error {
		if s != "." && len(validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(s, "."))) > 0 {
			return fields.Invalid(at, s, "must be DNS labels with dots between them, at most 253 characters, or a dot alone")
		}
		return nil
	})(at, value)
}

// probeRows are the fields of one probe.
func probeRows() []fields.Row {
	return []fields.Row{
		fields.At("exec.command", fields.List(64)),
		fields.At("exec.command[]", fields.Text(4096)),
		fields.At("guestAgentPing", fields.Object),
		fields.At("httpGet.path", fields.Text(2048)),
		fields.At("httpGet.port", port),
		fields.At("httpGet.scheme", fields.OneOf(corev1.URISchemeHTTP, corev1.URISchemeHTTPS)),
		fields.At("httpGet.httpHeaders[].name", fields.Match(`[-A-Za-z0-9_]+`, 256)),
		fields.At("httpGet.httpHeaders[].value", fields.Text(4096)),
		fields.At("tcpSocket.port", port),
		fields.At("initialDelaySeconds", fields.Integer(0, 1<<31-1)),
		fields.At("timeoutSeconds", fields.Integer(0, 1<<31-1)),
		fields.At("periodSeconds", fields.Integer(0, 1<<31-1)),
		fields.At("successThreshold", fields.Integer(0, 1<<31-1)),
		fields.At("failureThreshold", fields.Integer(0, 1<<31-1)),
	}
}
