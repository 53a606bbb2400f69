package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// checkPod finds missing and contradictory fields of the VMI's pod, so that the API
// server will accept that pod.
func checkPod(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	var problems field.ErrorList
	for i, t := range vmi.Tolerations {
		problems = append(problems, checkToleration(at.Child("tolerations").Index(i), t)...)
	}
	problems = append(problems, checkSpread(at.Child("topologySpreadConstraints"), vmi.TopologySpreadConstraints)...)
	problems = append(problems, checkDNS(at, vmi)...)
	problems = append(problems, checkAccount(at, vmi)...)
	problems = append(problems, checkKernel(at.Child("domain", "firmware", "kernelBoot", "container"), vmi)...)
	ports := map[string]bool{}
	for i, card := range vmi.Domain.Devices.Interfaces {
		for j, p := range card.Ports {
			if p.Name != "" && ports[p.Name] {
				problems = append(problems, field.Duplicate(at.Child("domain", "devices", "interfaces").Index(i).
					Child("ports").Index(j).Child("name"), p.Name))
			}
			ports[p.Name] = true
			if p.Name != "" && len(validation.IsValidPortName(p.Name)) > 0 {
				problems = append(problems, fields.Invalid(at.Child("domain", "devices", "interfaces").Index(i).
					Child("ports").Index(j).Child("name"), p.Name, "must be a name that Kubernetes gives a container's port: "+
					"1 to 15 lower-case letters, digits and single hyphens between them, with at least one letter"))
			}
		}
	}
	problems = append(problems, checkProbe(at.Child("livenessProbe"), vmi.LivenessProbe, ports)...)
	problems = append(problems, checkProbe(at.Child("readinessProbe"), vmi.ReadinessProbe, ports)...)
	if p := vmi.LivenessProbe; p != nil && p.SuccessThreshold > 1 {
		problems = append(problems, fields.Invalid(at.Child("livenessProbe", "successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return problems
}

// checkAccount wants one service account: the pod has one.
func checkAccount(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	for i, v := range vmi.Volumes {
		if a := v.ServiceAccount; a != nil && vmi.ServiceAccountName != "" && a.ServiceAccountName != vmi.ServiceAccountName {
			return field.ErrorList{fields.Invalid(at.Child("volumes").Index(i).Child("serviceAccount", "serviceAccountName"),
				a.ServiceAccountName, "a pod has one service account, and %s names another", at.Child("serviceAccountName"))}
		}
	}
	return nil
}

// checkKernel wants an image for the kernel: the one that it names, or that of the container's registry disk.
func checkKernel(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	f := vmi.Domain.Firmware
	if f == nil || f.KernelBoot == nil || f.KernelBoot.Container == nil || f.KernelBoot.Container.Image != "" {
		return nil
	}
	if slices.ContainsFunc(vmspec.PodVolumes(vmi.Volumes), func(v vmspec.PodVolume) bool { return v.Kind.Registry }) {
		return nil
	}
	return field.ErrorList{fields.Invalid(at, field.OmitValueType{}, "%s must be defined with an image", at)}
}

func checkToleration(at *field.Path, t corev1.Toleration) field.ErrorList {
	var problems field.ErrorList
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		problems = append(problems, field.Required(at.Child("key"), "without one, operator must be Exists"))
	}
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		problems = append(problems, fields.Refused(at.Child("value"), "operator Exists takes no value"))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		problems = append(problems, fields.Refused(at.Child("tolerationSeconds"), "requires effect NoExecute"))
	}
	return problems
}

func checkSpread(at *field.Path, all []corev1.TopologySpreadConstraint) field.ErrorList {
	var problems field.ErrorList
	type key struct {
		topology string
		action   corev1.UnsatisfiableConstraintAction
	}
	seen := map[key]bool{}
	for i, c := range all {
		at := at.Index(i)
		if c.MaxSkew == 0 {
			problems = append(problems, field.Required(at.Child("maxSkew"), ""))
		}
		if c.TopologyKey == "" {
			problems = append(problems, field.Required(at.Child("topologyKey"), ""))
		}
		if c.WhenUnsatisfiable == "" {
			problems = append(problems, field.Required(at.Child("whenUnsatisfiable"), ""))
		}
		if c.MinDomains != nil && c.WhenUnsatisfiable != corev1.DoNotSchedule {
			problems = append(problems, fields.Refused(at.Child("minDomains"), "requires whenUnsatisfiable DoNotSchedule"))
		}
		if len(c.MatchLabelKeys) > 0 && c.LabelSelector == nil {
			problems = append(problems, fields.Refused(at.Child("matchLabelKeys"), "requires a labelSelector"))
		}
		if k := (key{c.TopologyKey, c.WhenUnsatisfiable}); seen[k] {
			problems = append(problems, field.Duplicate(at, c.TopologyKey))
		} else {
			seen[k] = true
		}
	}
	return problems
}

func checkDNS(at *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	var problems field.ErrorList
	config := vmi.DNSConfig
	if vmi.DNSPolicy == corev1.DNSNone && (config == nil || len(config.Nameservers) == 0) {
		problems = append(problems, field.Required(at.Child("dnsConfig", "nameservers"), "dnsPolicy is None"))
	}
	if config == nil {
		return problems
	}
	for i, o := range config.Options {
		if o.Name == "" {
			problems = append(problems, field.Required(at.Child("dnsConfig", "options").Index(i).Child("name"), ""))
		}
	}
	return problems
}

// checkProbe requires exactly one handler. Ports are the names of the ports that the
// VM's interfaces list.
func checkProbe(at *field.Path, p *kubevirt.Probe, ports map[string]bool) field.ErrorList {
	if p == nil {
		return nil
	}
	var problems field.ErrorList
	handlers := 0
	if p.Exec != nil {
		handlers++
		if len(p.Exec.Command) == 0 {
			problems = append(problems, field.Required(at.Child("exec", "command"), ""))
		}
	}
	if p.GuestAgentPing != nil {
		handlers++
	}
	if p.HTTPGet != nil {
		handlers++
		problems = append(problems, checkPort(at.Child("httpGet", "port"), p.HTTPGet.Port, ports)...)
		for i, h := range p.HTTPGet.HTTPHeaders {
			if h.Name == "" {
				problems = append(problems, field.Required(
					at.Child("httpGet", "httpHeaders").Index(i).Child("name"), ""))
			}
		}
	}
	if p.TCPSocket != nil {
		handlers++
		problems = append(problems, checkPort(at.Child("tcpSocket", "port"), p.TCPSocket.Port, ports)...)
	}
	if handlers != 1 {
		problems = append(problems, fields.Refused(at,
			"a probe has one of exec, guestAgentPing, httpGet and tcpSocket, not %d", handlers))
	}
	return problems
}

func checkPort(at *field.Path, port intstr.IntOrString, ports map[string]bool) field.ErrorList {
	switch {
	case port.Type == intstr.String && !ports[port.StrVal]:
		return field.ErrorList{fields.Invalid(at, port.StrVal, "no interface lists a port of this name")}
	case port.Type == intstr.Int && port.IntVal == 0:
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}
