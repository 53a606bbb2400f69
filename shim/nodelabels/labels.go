// Package nodelabels writes on the node's own Node object what the node can give a VM, by
// KubeVirt's labels: CPU models and features, types of boards, Hyper-V enlightenments. So
// the scheduler keeps VMs off nodes that could not start them.
//
// It owns the labels and when they are written. It leaves what a node can do to package
// domain, and the selectors of pods to the controller. It uses the credential of the
// node's kubelet. VMs run without it: without a kubeconfig it does nothing.
package nodelabels

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// prefixes are those of the labels that the shim owns on its node.
func prefixes() []string {
	return []string{
		kubevirt.CPUModelLabel, kubevirt.SupportedHostModelMigrationCPU, kubevirt.CPUFeatureLabel, kubevirt.CPUModelVendorLabel,
		kubevirt.HostModelCPULabel, kubevirt.HostModelRequiredFeaturesLabel,
		kubevirt.SupportedMachineTypeLabel, kubevirt.HypervLabel, kubevirt.CPUTimerLabel, vmspec.ArchitectureLabel,
	}
}

// encryption returns the labels of the ways in which a node can encrypt guests' memory.
func encryption(e domain.Encryption) map[string]bool {
	return map[string]bool{
		kubevirt.SEVLabel: e.SEV, kubevirt.SEVESLabel: e.SEVES, kubevirt.SEVSNPLabel: e.SNP, kubevirt.TDXLabel: e.TDX,
	}
}

func owned(key string) bool {
	if key == kubevirt.NodeSchedulable {
		return true
	}
	if _, is := encryption(domain.Encryption{})[key]; is {
		return true
	}
	return slices.ContainsFunc(prefixes(), func(p string) bool { return strings.HasPrefix(key, p) })
}

// enlightenments maps libvirt's names to KubeVirt's. As with KubeVirt, those that QEMU has
// without the kernel's help get no label.
func enlightenments() map[string]string {
	return map[string]string{
		"vpindex": "vpindex", "runtime": "runtime", "reset": "reset", "synic": "synic", "stimer": "synictimer",
		"frequencies": "frequencies", "reenlightenment": "reenlightenment", "tlbflush": "tlbflush", "ipi": "ipi",
	}
}

// maxLabels bounds the labels of a kind, which libvirt lists.
const maxLabels = 1024

// Of returns the labels of a node with these capabilities.
func Of(c domain.Capabilities) map[string]string {
	all := map[string]string{}
	add := func(prefix string, names ...string) {
		for _, name := range names[:min(len(names), maxLabels)] {
			if key := prefix + name; len(validation.IsQualifiedName(key)) == 0 {
				all[key] = "true"
			}
		}
	}
	add(kubevirt.CPUModelLabel, c.Models...)
	add(kubevirt.SupportedHostModelMigrationCPU, c.KnownModels...)
	add(kubevirt.CPUFeatureLabel, c.Features...)
	if c.HostModel != "" {
		add(kubevirt.HostModelCPULabel, c.HostModel)
		add(kubevirt.HostModelRequiredFeaturesLabel, c.HostFeatures...)
		add(kubevirt.CPUModelVendorLabel, c.Vendor)
	}
	for _, m := range c.Machines {
		// A VM has one of these boards, or none.
		if m == "q35" || m == "pc" || vmspec.IsARMMachine(m) || strings.HasPrefix(m, "pc-q35-") || strings.HasPrefix(m, "pc-i440fx-") {
			add(kubevirt.SupportedMachineTypeLabel, m)
		}
	}
	add(vmspec.ArchitectureLabel, c.Architectures...)
	for _, e := range c.Hyperv {
		if name, ok := enlightenments()[e]; ok {
			add(kubevirt.HypervLabel, name)
		}
	}
	for key, can := range encryption(c.Encryption) {
		if can {
			add(key, "")
		}
	}
	if c.TSC > 0 {
		all[kubevirt.CPUTimerLabel+"tsc-frequency"] = strconv.FormatUint(c.TSC, 10)
		all[kubevirt.CPUTimerLabel+"tsc-scalable"] = strconv.FormatBool(c.TSCScaling)
	}
	return all
}

// changes returns the JSON merge patch of labels that turns those of a node into the wanted
// ones: null removes a label. Labels that the shim does not own stay.
func changes(has, wanted map[string]string) map[string]any {
	all := map[string]any{}
	for key := range has {
		if _, keep := wanted[key]; owned(key) && !keep {
			all[key] = nil
		}
	}
	for key, value := range wanted {
		if was, is := has[key]; !is || was != value {
			all[key] = value
		}
	}
	return all
}
