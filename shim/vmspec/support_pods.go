package vmspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// supportedOfPods is what a manifest may say of a VMI's pod, beside what
// [supported] says of the machine. The controller puts it into the pod, and the
// node never sees it.
var supportedOfPods = []row{
	{"subdomain", label},
	{"priorityClassName", subdomain},
	{"schedulerName", subdomain},
	{"architecture", oneOf("amd64")},
	{"evictionStrategy", oneOf(kubevirt.EvictionStrategyNone, kubevirt.EvictionStrategyLiveMigrateIfPossible)},
	{"tolerations", list(64)},
	{"tolerations[].key", labelKey},
	{"tolerations[].operator", oneOf(corev1.TolerationOpExists, corev1.TolerationOpEqual)},
	{"tolerations[].value", labelValue},
	{"tolerations[].effect", oneOf(
		corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)},
	{"tolerations[].tolerationSeconds", integer(-1<<62, 1<<62)},
	{"topologySpreadConstraints[].maxSkew", integer(1, 1<<31-1)},
	{"topologySpreadConstraints[].minDomains", integer(1, 1<<31-1)},
	{"topologySpreadConstraints[].topologyKey", labelKey},
	{"topologySpreadConstraints[].whenUnsatisfiable", oneOf(corev1.DoNotSchedule, corev1.ScheduleAnyway)},
	{"topologySpreadConstraints[].nodeAffinityPolicy", oneOf(
		corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)},
	{"topologySpreadConstraints[].nodeTaintsPolicy", oneOf(
		corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)},
	{"topologySpreadConstraints[].matchLabelKeys[]", labelKey},
	{"dnsPolicy", oneOf(corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)},
	{"dnsConfig.nameservers", list(3)},
	{"dnsConfig.nameservers[]", ipAddress},
	{"dnsConfig.searches", list(32)},
	{"dnsConfig.searches[]", subdomain},
	{"dnsConfig.options[].name", match(`[!-~]+`, maxLabel)},
	{"dnsConfig.options[].value", text(maxLabel)},
	{"volumes[].containerDisk.imagePullSecret", subdomain},
}

// supportedProbe is what a manifest may say of one probe.
var supportedProbe = []row{
	{"exec.command", list(64)},
	{"exec.command[]", text(4096)},
	{"guestAgentPing", object},
	{"httpGet.path", text(2048)},
	{"httpGet.port", port},
	{"httpGet.scheme", oneOf(corev1.URISchemeHTTP, corev1.URISchemeHTTPS)},
	{"httpGet.httpHeaders[].name", match(`[-A-Za-z0-9_]+`, 256)},
	{"httpGet.httpHeaders[].value", text(4096)},
	{"tcpSocket.port", port},
	{"initialDelaySeconds", integer(0, 1<<31-1)},
	{"timeoutSeconds", integer(0, 1<<31-1)},
	{"periodSeconds", integer(0, 1<<31-1)},
	{"successThreshold", integer(0, 1<<31-1)},
	{"failureThreshold", integer(0, 1<<31-1)},
}

// wholesOfPods are the parts of a pod that are checked as one.
var wholesOfPods = []whole{
	{"nodeSelector", "a map of labels", labelMap},
	{"affinity", "a Kubernetes affinity", affinity},
	{"topologySpreadConstraints[].labelSelector", "a label selector", selector},
}

// supportedOfVMs is what a VirtualMachine's spec may say beside its template's
// spec, which is a VMI's.
var supportedOfVMs = []row{
	{"running", boolean},
	{"runStrategy", oneOf(kubevirt.RunStrategyAlways, kubevirt.RunStrategyRerunOnFailure,
		kubevirt.RunStrategyManual, kubevirt.RunStrategyHalted, kubevirt.RunStrategyOnce)},
	{"instancetype.kind", kindOf("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype")},
	{"instancetype.name", subdomain},
	{"instancetype.revisionName", subdomain},
	{"preference.kind", kindOf("VirtualMachinePreference", "VirtualMachineClusterPreference")},
	{"preference.name", subdomain},
	{"preference.revisionName", subdomain},
}

// wholesOfVMs is that of replica sets too, whose template is the same.
var wholesOfVMs = []whole{
	{"template.metadata.labels", "a map of labels", labelMap},
	{"template.metadata.annotations", "a map of annotations", annotationMap},
}

// vmiTable is what a manifest may say of a VMI.
func vmiTable() table {
	return newTable(func() any { return new(fields) }, manifestRows(), wholesOfPods)
}

// vmTable is what a manifest may say of a VM beside its template's spec.
func vmTable() table {
	return newTable(func() any { return new(kubevirt.VirtualMachineSpec) }, supportedOfVMs, wholesOfVMs)
}

func manifestRows() []row {
	rows := append(append([]row(nil), supported...), supportedOfPods...)
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		for _, r := range supportedProbe {
			rows = append(rows, row{probe + "." + r.path, r.takes})
		}
	}
	return rows
}

// ManifestPaths returns the paths of a VMI's fields that a manifest may use
// beside those that a node reads ([SupportedPaths]), in the order of the lists.
func ManifestPaths() []string { return paths("spec.", manifestRows()[len(supported):], wholesOfPods) }

// VMPaths returns the paths of a VM's fields that a manifest may use beside its
// template's spec.
func VMPaths() []string { return paths("spec.", supportedOfVMs, wholesOfVMs) }

// Wholes says what the fields take that are checked as one.
func Wholes() map[string]string {
	all := map[string]string{}
	for _, w := range slices.Concat(
		wholesOfPods, wholesOfVMs, wholesOfReplicaSets, wholesOfInstancetypes, wholesOfPreferences) {
		all["spec."+w.path] = w.is
	}
	return all
}

func paths(root string, rows []row, wholes []whole) []string {
	var all []string
	for _, r := range rows {
		all = append(all, root+r.path)
	}
	for _, w := range wholes {
		all = append(all, root+w.path)
	}
	return all
}
