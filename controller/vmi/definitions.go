package vmi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/foreign"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// definition is what a migration must know of a network of Multus.
type definition struct {
	missing bool
	// ipam is the plug-in that gives each pod a separate address; empty if none does, or if the definition does not say.
	ipam string
	// ips says that this plug-in gives a pod the addresses that the pod asks for.
	ips bool
}

const (
	// definitionAge is how long a definition is kept in memory, and maxDefinitions how many are.
	definitionAge  = time.Minute
	maxDefinitions = 1000
)

// definitions reads networks of Multus, and keeps them for a moment: each status of a VM with such a network depends on them.
type definitions struct {
	live client.Reader
	now  func() time.Time

	mu    sync.Mutex
	since time.Time
	known map[client.ObjectKey]definition
}

// of returns the definition that an instance of a namespace names, as of a moment ago.
func (d *definitions) of(ctx context.Context, namespace, name string) (definition, error) {
	key := keyOf(namespace, name)
	d.mu.Lock()
	if age := d.now().Sub(d.since); age < 0 || age > definitionAge || len(d.known) >= maxDefinitions {
		d.since, d.known = d.now(), map[client.ObjectKey]definition{}
	}
	one, is := d.known[key]
	d.mu.Unlock()
	if is {
		return one, nil
	}
	one, err := d.read(ctx, namespace, name)
	if err == nil && !one.missing { // the user is about to create it
		d.mu.Lock()
		d.known[key] = one
		d.mu.Unlock()
	}
	return one, err
}

// read returns the definition as it is.
func (d *definitions) read(ctx context.Context, namespace, name string) (definition, error) {
	key, object := keyOf(namespace, name), new(unstructured.Unstructured)
	object.SetGroupVersionKind(foreign.Network().GroupVersionKind)
	err := d.live.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return definition{missing: true}, nil
	case err != nil:
		return definition{}, fmt.Errorf("read network %s: %w", key, err)
	}
	text, _, _ := unstructured.NestedString(object.Object, "spec", "config")
	return readDefinition(text), nil
}

// keyOf returns the name and the namespace of a definition, which an instance names with or without a namespace.
func keyOf(namespace, name string) client.ObjectKey {
	if of, in, found := strings.Cut(name, "/"); found {
		return client.ObjectKey{Namespace: of, Name: in}
	}
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// ovn is the type of OVN-Kubernetes' plug-in for secondary networks.
const ovn = "ovn-k8s-cni-overlay"

// plugin is what matters of the configuration of a CNI plug-in.
type plugin struct {
	Type string `json:"type"`
	// Subnets are those of which OVN-Kubernetes gives addresses, PersistentIPs has it give a VM's pods the same ones, by an
	// IPAMClaim.
	Subnets       string `json:"subnets"`
	PersistentIPs bool   `json:"allowPersistentIPs"`
	IPAM          struct {
		Type string `json:"type"`
	} `json:"ipam"`
	Capabilities struct {
		IPs bool `json:"ips"`
	} `json:"capabilities"`
}

// readDefinition reads the configuration of one plug-in or of a chain of them. It knows the plug-ins that give each pod a
// separate address; others may give each pod the same one, or none.
func readDefinition(text string) definition {
	var config struct {
		plugin
		Plugins []plugin `json:"plugins"`
	}
	if decode.JSON([]byte(text), &config) != nil {
		return definition{}
	}
	for _, p := range append(config.Plugins, config.plugin) {
		switch {
		case p.Type == ovn && p.Subnets != "" && !p.PersistentIPs:
			return definition{ipam: p.Type + " without allowPersistentIPs"}
		case p.IPAM.Type == "host-local":
			return definition{ipam: p.IPAM.Type, ips: p.Capabilities.IPs}
		case p.IPAM.Type == "whereabouts": // gives no address on request
			return definition{ipam: p.IPAM.Type}
		}
	}
	return definition{}
}

// eachNetwork calls do with each network of Multus that an instance has, and its definition, until that returns true.
func eachNetwork(
	ctx context.Context, vmi *kubevirt.VirtualMachineInstance, read func(ctx context.Context, namespace, name string) (definition, error),
	do func(n kubevirt.Network, of definition) (stop bool),
) error {
	for _, n := range vmi.Spec.Networks {
		if n.Multus == nil {
			continue
		}
		of, err := read(ctx, vmi.Namespace, n.Multus.NetworkName)
		if err != nil {
			return err
		}
		if do(n, of) {
			return nil
		}
	}
	return nil
}

// ownAddress returns why an instance's guest could not keep its addresses on another node; empty if nothing says so. A guest
// with the binding bridge has the address of its pod.
func (d *definitions) ownAddress(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (why string, err error) {
	err = eachNetwork(ctx, vmi, d.of, func(n kubevirt.Network, of definition) bool {
		if !vmspec.IsSecondary(n) || of.ipam == "" || of.ips || !pod.Bridged(&vmi.Spec, n.Name) {
			return false
		}
		why = fmt.Sprintf("cannot migrate VMI: network %s gives each pod a separate address (IPAM %s), and the guest has its pod's: "+
			`leave addresses to guests (no IPAM), use an IPAM plug-in with the capability "ips", or OVN-Kubernetes' allowPersistentIPs`, n.Multus.NetworkName, of.ipam)
		return true
	})
	return why, err
}

// MissingNetwork returns the name of a network of Multus that an instance has and that does not exist; empty for none.
func (m *Pods) MissingNetwork(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (name string, err error) {
	err = eachNetwork(ctx, vmi, m.networks.read, func(n kubevirt.Network, of definition) bool {
		if of.missing {
			name = n.Multus.NetworkName
		}
		return of.missing
	})
	return name, err
}

// KeepAddresses has the target of a migration ask for the addresses that the source's pod has on secondary networks, where
// those give pods the addresses that they ask for, or by the source's IPAMClaims.
func (m *Pods) KeepAddresses(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, target, source *corev1.Pod) error {
	if err := pod.CopyClaims(target, source); err != nil {
		return err
	}
	has := map[string][]string{}
	for _, one := range attachments(source) {
		has[one.PodInterfaceName] = one.IPs
	}
	asks := map[string]bool{}
	err := eachNetwork(ctx, vmi, m.networks.of, func(n kubevirt.Network, of definition) bool {
		asks[n.Name] = vmspec.IsSecondary(n) && of.ips && pod.Bridged(&vmi.Spec, n.Name)
		return false
	})
	if err != nil {
		return err
	}
	return pod.AskForAddresses(target, &vmi.Spec, func(network, device string) []string {
		if !asks[network] {
			return nil
		}
		return has[device]
	})
}
