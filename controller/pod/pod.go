package pod

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"
	kubevirt "kubevirt.io/api/core/v1"
)

const (
	// Container is the name of the container that is the VM, as with KubeVirt.
	Container = "compute"
	// Finalizer keeps a pod's object until its guest has ended, so that a forced
	// deletion never leads to a second guest next to the first.
	Finalizer = "nodevirt.io/guest"
	// AnnotationTemplate is on an instance of a VirtualMachine, and is a digest of
	// the template that it was made from. Pods don't have it.
	AnnotationTemplate = "vm.nodevirt.io/template"
	// AnnotationFixed is on such an instance, and is a digest of what of the template a running
	// instance cannot take over. Pods don't have it.
	AnnotationFixed = "vm.nodevirt.io/fixed-template"
	// AnnotationOverridden is on an instance which has said itself what presets say
	// too, and is what: text for people.
	AnnotationOverridden = "vm.nodevirt.io/overridden-presets"
	// AnnotationHotplugged is on an instance of a VirtualMachine, and has the names of the
	// hotplugged volumes that it has by the template.
	AnnotationHotplugged = "vm.nodevirt.io/hotplugged-volumes"
	// DefaultGracePeriod is the time in seconds that a guest has to shut down
	// where the instance does not say. It is Kubernetes' and KubeVirt's.
	DefaultGracePeriod = 30
)

// Options are what the cluster's administrator chose.
type Options struct {
	// RuntimeClass is the name of the RuntimeClass whose handler is the shim's.
	RuntimeClass string
	// StubImage is the image of the VM's container where no volume has one. Empty
	// means that each VM needs a containerDisk or a kernel's image.
	StubImage string
	// Surroundings are those of one instance.
	Surroundings Surroundings
}

// GracePeriod returns the time in seconds that a guest has to shut down, by what its instance says, if anything.
func GracePeriod(set *int64) int64 {
	if set != nil {
		return *set
	}
	return DefaultGracePeriod
}

// New returns the pod of an instance that uses these PVCs, some of which are network
// disks. It has no volume that the VM gets once it runs. An error names the fields of the instance
// that no pod can be made of.
func New(vmi *kubevirt.VirtualMachineInstance, objects PVCObjects, network NetworkDisks, o Options) (*corev1.Pod, error) {
	vmi, added := withOverhead(AtStart(vmi), o.Surroundings)
	gates := o.Surroundings.Config.Gates()
	problems := append(gates.Check(field.NewPath("spec"), &vmi.Spec),
		gates.CheckAnnotations(field.NewPath("metadata", "annotations"), vmi.Annotations)...)
	if len(problems) > 0 {
		return nil, sentences(problems)
	}
	pvcs, err := objects.volumes(&vmi.Spec, network)
	if err != nil {
		return nil, err
	}
	vmi, spare := withoutFilled(vmi, objects)
	vmi = withOrigins(vmi, objects)
	registered := o.Surroundings.Config.Bindings()
	if vmi, err = withPluginSidecars(vmi, registered, gates.HookSidecars); err != nil {
		return nil, err
	}
	annotations, err := annotations(vmi, registered)
	if err != nil {
		return nil, err
	}
	maps.Copy(annotations, BackupHooks(vmi, o.Surroundings.Config))
	if added > 0 {
		annotations[AnnotationReserved] = strconv.FormatInt(added, 10)
	}
	addPVCs(annotations, pvcs)
	if err := addNetworkDisks(annotations, network); err != nil {
		return nil, err
	}
	stub, secret := o.StubImage, ""
	if stub == "" && spare != nil {
		stub, secret = spare.Image, spare.ImagePullSecret
	}
	from, err := boot(&vmi.Spec, stub)
	if err != nil {
		return nil, err
	}
	spec := podSpec(vmi, from, o.Surroundings)
	if secret != "" {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	spec.RuntimeClassName = &o.RuntimeClass
	mountVolumes(&spec, &vmi.Spec, from.volume, pvcs)
	if err := addState(&spec, vmi, o.Surroundings.StatePVC); err != nil {
		return nil, err
	}
	addResume(&spec, o.Surroundings.ResumePVC)
	if err := addKernel(&spec, &vmi.Spec); err != nil {
		return nil, err
	}
	if err := addHooks(&spec, vmi, gates.HookImage, o.Surroundings.Config.Given.SupportContainerResources); err != nil {
		return nil, err
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            Name(vmi),
			Namespace:       vmi.Namespace,
			Labels:          labels(vmi),
			Annotations:     annotations,
			Finalizers:      []string{Finalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, kubevirt.VirtualMachineInstanceGroupVersionKind)},
		},
		Spec: spec,
	}, nil
}

func podSpec(vmi *kubevirt.VirtualMachineInstance, from bootImage, around Surroundings) corev1.PodSpec {
	no, grace := false, GracePeriod(vmi.Spec.TerminationGracePeriodSeconds)
	s := vmi.Spec.DeepCopy()
	return corev1.PodSpec{
		Containers:                    []corev1.Container{container(s, from, around)},
		Hostname:                      hostname(vmi),
		Subdomain:                     s.Subdomain,
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: &grace,
		DNSPolicy:                     s.DNSPolicy,
		DNSConfig:                     dnsConfig(s.DNSConfig),
		NodeSelector:                  nodeSelector(s, around),
		Affinity:                      affinity(s, around),
		Tolerations:                   tolerations(s.Tolerations),
		TopologySpreadConstraints:     spread(s, around),
		SchedulerName:                 s.SchedulerName,
		PriorityClassName:             s.PriorityClassName,
		ImagePullSecrets:              pullSecrets(s),
		ServiceAccountName:            serviceAccount(s),
		ResourceClaims:                resourceClaims(s),
		// A guest sees neither a token, but that of a volume, nor environment variables of Services.
		AutomountServiceAccountToken: &no,
		EnableServiceLinks:           &no,
		SecurityContext:              Restricted(),
	}
}

// tolerations are those of an instance, and for nodes that are not heard, of which the instance says nothing: its guest
// runs on there, and a pod that is deleted meanwhile would end it when the node returns. Kubernetes' default is five
// minutes.
func tolerations(given []corev1.Toleration) []corev1.Toleration {
	all := slices.Clone(given)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		says := slices.ContainsFunc(given, func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !says {
			all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
		}
	}
	return all
}

// dnsConfig writes the addresses of servers without leading zeros, which pods may not have.
func dnsConfig(c *corev1.PodDNSConfig) *corev1.PodDNSConfig {
	if c != nil {
		for i, server := range c.Nameservers {
			if ip := utilnet.ParseIPSloppy(server); ip != nil {
				c.Nameservers[i] = ip.String()
			}
		}
	}
	return c
}

func container(s *kubevirt.VirtualMachineInstanceSpec, from bootImage, around Surroundings) corev1.Container {
	return corev1.Container{
		Name:            Container,
		Image:           from.image,
		ImagePullPolicy: from.policy,
		Resources:       resources(s, around),
		Ports:           ports(s),
		LivenessProbe:   probe(s.LivenessProbe),
		ReadinessProbe:  probe(s.ReadinessProbe),
		SecurityContext: RestrictedContainer(),
		// The serial console, which kubectl attach -it reaches.
		Stdin: true,
		TTY:   true,
	}
}
