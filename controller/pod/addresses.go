package pod

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// maxAddresses is how many addresses a pod asks for on a network.
const maxAddresses = 8

// Bridged reports whether an instance's guest has the address of its pod on a network.
func Bridged(s *kubevirt.VirtualMachineInstanceSpec, network string) bool {
	return cardOf(s, network).Bridge != nil
}

// AnnotationPrimaryClaim names the IPAMClaim of the primary network of a pod's namespace, for OVN-Kubernetes.
const AnnotationPrimaryClaim = "k8s.ovn.org/primary-udn-ipamclaim"

// CopyClaims has the pod of a migration's target name the IPAMClaims of the source's pod, by which OVN-Kubernetes gives it
// the same addresses. KubeVirt's IPAM extension has written them there.
func CopyClaims(target, source *corev1.Pod) error {
	if claim := source.Annotations[AnnotationPrimaryClaim]; claim != "" && target.Annotations[AnnotationPrimaryClaim] == "" {
		metav1.SetMetaDataAnnotation(&target.ObjectMeta, AnnotationPrimaryClaim, claim)
	}
	var asked, theirs []network
	text := target.Annotations[AnnotationNetworks]
	if text == "" || decode.JSON([]byte(source.Annotations[AnnotationNetworks]), &theirs) != nil {
		return nil //nolint:nilerr // a source whose annotation can't be read names no claims
	}
	if err := decode.JSON([]byte(text), &asked); err != nil {
		return fmt.Errorf("metadata.annotations[%s]: %w", AnnotationNetworks, err)
	}
	changed := false
	for i := range asked {
		for _, one := range theirs {
			if same := one.Interface == asked[i].Interface && one.Name == asked[i].Name; same && asked[i].IPAMClaim == "" && one.IPAMClaim != "" {
				asked[i].IPAMClaim, changed = one.IPAMClaim, true
			}
		}
	}
	if !changed {
		return nil
	}
	return setNetworks(target, asked)
}

func setNetworks(p *corev1.Pod, all []network) error {
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode the networks of pod %s: %w", p.Name, err)
	}
	p.Annotations[AnnotationNetworks] = string(text)
	return nil
}

// AskForAddresses has a pod ask for addresses on secondary networks. Of returns those of a network by the instance's name of
// it and by its interface in the pod; text that is no address is left out.
func AskForAddresses(p *corev1.Pod, s *kubevirt.VirtualMachineInstanceSpec, of func(network, device string) []string) error {
	text := p.Annotations[AnnotationNetworks]
	if text == "" {
		return nil
	}
	var asked []network
	if err := decode.JSON([]byte(text), &asked); err != nil {
		return fmt.Errorf("metadata.annotations[%s]: %w", AnnotationNetworks, err)
	}
	number, changed := 0, false
	for _, n := range s.Networks {
		if !vmspec.IsSecondary(n) {
			continue
		}
		number++
		device := deviceOf(s, n.Name, number)
		for i := range asked {
			if asked[i].Interface != device {
				continue
			}
			for _, address := range of(n.Name, device) {
				if a, err := netip.ParseAddr(address); err == nil && len(asked[i].IPs) < maxAddresses {
					asked[i].IPs, changed = append(asked[i].IPs, a.String()), true
				}
			}
		}
	}
	if !changed {
		return nil
	}
	return setNetworks(p, asked)
}
