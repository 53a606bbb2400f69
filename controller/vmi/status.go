package vmi

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// status returns the instance's status for a view. It is pure and idempotent, so
// that nothing is written twice.
func status(vmi *kubevirt.VirtualMachineInstance, v view, now time.Time) kubevirt.VirtualMachineInstanceStatus {
	s := *vmi.Status.DeepCopy()
	if vmi.IsFinal() {
		return s // an end is an end
	}
	phase := v.phase()
	if s.Phase == "" { // as with KubeVirt it was pending from the first moment
		s.PhaseTransitionTimestamps = append(s.PhaseTransitionTimestamps, transition(kubevirt.Pending, vmi.CreationTimestamp))
	}
	if phase != s.Phase && (s.Phase != "" || phase != kubevirt.Pending) {
		s.PhaseTransitionTimestamps = append(s.PhaseTransitionTimestamps, v.skipped(s.Phase, phase)...)
		s.PhaseTransitionTimestamps = append(s.PhaseTransitionTimestamps, transition(phase, metav1.NewTime(now)))
	}
	s.Phase = phase
	s.Reason = reason(v)
	s.VirtualMachineRevisionName = revisionName(vmi)
	if v.pod != nil {
		setPod(&s, v.pod)
	}
	if v.running() {
		s.Interfaces = addGuests(interfaces(vmi, v.pod), v)
		s.GuestOSInfo = osInfo(v)
		s.FSFreezeStatus = frozen(v)
		setMachine(&s, pod.AsStarted(vmi, v.pod), v)
		s.MigrationMethod = migrationMethod(&vmi.Spec)
		if len(s.MigratedVolumes) > 0 {
			s.MigrationMethod = kubevirt.BlockMigration
		}
	}
	s.Conditions = conditions(vmi, v, now)
	return s
}

// revisionName returns the name of the ControllerRevision that its VirtualMachine has
// made for this start; "" for an instance without one. An edit of the VirtualMachine may
// raise the generation later: the name stays.
func revisionName(vmi *kubevirt.VirtualMachineInstance) string {
	owner, generation := metav1.GetControllerOf(vmi), vmi.Annotations[kubevirt.VirtualMachineGenerationAnnotation]
	if owner == nil || owner.Kind != kubevirt.VirtualMachineGroupVersionKind.Kind || generation == "" {
		return ""
	}
	if was := vmi.Status.VirtualMachineRevisionName; strings.HasPrefix(was, pod.RevisionName(owner.UID, "")) {
		return was
	}
	return pod.RevisionName(owner.UID, generation)
}

func transition(
	phase kubevirt.VirtualMachineInstancePhase, at metav1.Time,
) kubevirt.VirtualMachineInstancePhaseTransitionTimestamp {
	return kubevirt.VirtualMachineInstancePhaseTransitionTimestamp{Phase: phase, PhaseTransitionTimestamp: at}
}

func setPod(s *kubevirt.VirtualMachineInstanceStatus, p *corev1.Pod) {
	active := map[types.UID]string{p.UID: p.Spec.NodeName}
	if !maps.Equal(s.ActivePods, active) {
		s.ActivePods = active
	}
	s.NodeName = p.Spec.NodeName
	if p.Status.QOSClass != "" {
		class := p.Status.QOSClass
		s.QOSClass = &class
	}
}

// reason returns the reason of a phase that needs one.
func reason(v view) string {
	switch c := v.compute(); {
	case v.gone:
		return "PodLost"
	case v.pod == nil:
		return ""
	case v.away != nil:
		return ReasonGuestElsewhere
	case v.waits:
		return ReasonGuestMissing
	case c != nil && c.Terminated != nil && c.Terminated.Reason == ReasonSuspended:
		return ReasonSuspended
	case v.ended() && v.node.gone:
		return ReasonNodeGone
	case v.disrupted():
		return ReasonPodDeleted
	case v.ended() && c != nil && c.Terminated != nil:
		if c.Terminated.ExitCode == 0 {
			return ""
		}
		return c.Terminated.Reason
	case v.ended() && v.node.outOfService:
		return ReasonNodeOutOfService
	case v.ended():
		return v.pod.Status.Reason
	case v.node.deleted:
		return ReasonNodeDeleted
	case v.node.lost && v.pod.Spec.NodeName != "":
		return ReasonNodeUnresponsive
	}
	return ""
}

// interfaces returns the instance's cards with what the pod reports of their networks.
func interfaces(vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) []kubevirt.VirtualMachineInstanceNetworkInterface {
	const podInterface = "eth0"
	own := kubevirt.VirtualMachineInstanceNetworkInterface{
		Name: "default", PodInterfaceName: podInterface, IP: p.Status.PodIP, InfoSource: "domain",
	}
	for _, ip := range p.Status.PodIPs {
		own.IPs = append(own.IPs, ip.IP)
	}
	if len(vmi.Spec.Networks) == 0 {
		if auto := vmi.Spec.Domain.Devices.AutoattachPodInterface; auto != nil && !*auto {
			return nil
		}
		return []kubevirt.VirtualMachineInstanceNetworkInterface{own}
	}
	attached := attachments(p)
	secondary := 0
	var all []kubevirt.VirtualMachineInstanceNetworkInterface
	for _, n := range vmi.Spec.Networks {
		one := own
		switch {
		case vmspec.IsPods(n):
		case pod.PluggableCard(&vmi.Spec, n.Name) && !pod.StartedWithCard(p, n.Name):
			var has bool
			if one, has = pluggedCard(p, n.Name); !has {
				continue
			}
		default:
			secondary++
			one = attached[cmp.Or(pod.StartNumber(p, n.Name), secondary)]
			one.MAC = cmp.Or(keptMAC(p, n.Name), one.MAC)
		}
		one.Name = n.Name
		at := slices.IndexFunc(vmi.Spec.Domain.Devices.Interfaces, func(i kubevirt.Interface) bool { return i.Name == n.Name })
		if at >= 0 && vmi.Spec.Domain.Devices.Interfaces[at].MacAddress != "" {
			one.MAC = vmi.Spec.Domain.Devices.Interfaces[at].MacAddress
		}
		all = append(all, one)
	}
	return all
}
