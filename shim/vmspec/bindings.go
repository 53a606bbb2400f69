package vmspec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// NetworkBinding is what a node must know of a registered network binding plug-in. Its fields are those of
// KubeVirt's registration.
type NetworkBinding struct {
	// DomainAttachmentType is tap or managedTap.
	DomainAttachmentType Binding `json:"domainAttachmentType"`
	// Migration says that a VM with the plug-in can migrate; nil that it can't.
	Migration *NetworkBindingMigration `json:"migration,omitempty"`
}

// NetworkBindingMigration has no fields yet.
type NetworkBindingMigration struct{}

// MaxBindings bounds the plug-ins of a cluster.
const MaxBindings = 64

// BindingName takes the name of a network binding plug-in.
var BindingName = fields.Match(`[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?`, fields.MaxLabel)

// bindings are the network binding plug-ins of one VM, by their names.
type bindings map[string]NetworkBinding

// parseBindings reads a pod's annotation.
func parseBindings(text string) (bindings, error) {
	var all bindings
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: not a JSON object of plug-ins: %s", AnnotationNetworkBindings, excerpt(err.Error()))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: text follows the JSON object; remove it", AnnotationNetworkBindings)
	}
	if len(all) > MaxBindings {
		return nil, fmt.Errorf("%s: %d plug-ins; at most %d are allowed", AnnotationNetworkBindings, len(all), MaxBindings)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if t := all[name].DomainAttachmentType; t != BindingTap && t != BindingManagedTap {
			errs = append(errs, fmt.Errorf("%s: plug-in %q: domainAttachmentType %q is neither %s nor %s", AnnotationNetworkBindings,
				excerpt(name), excerpt(string(t)), BindingTap, BindingManagedTap))
		}
	}
	return all, capped(errs)
}

// apply returns the cards, those of plug-ins with the bindings of their plug-ins. The error names cards whose plug-in
// is missing.
func (b bindings) apply(cards []Interface) ([]Interface, error) {
	all := slices.Clone(cards)
	var errs []error
	for i := range all {
		card := &all[i]
		if card.Plugin == "" {
			continue
		}
		plugin, known := b[card.Plugin]
		if !known {
			errs = append(errs, fmt.Errorf("%s: network card %q: annotation %s has no network binding plug-in %q; it has: %s", AnnotationVMI,
				card.Name, AnnotationNetworkBindings, card.Plugin, excerpt(strings.Join(slices.Sorted(maps.Keys(b)), ", "))))
			continue
		}
		card.Binding, card.Moves = plugin.DomainAttachmentType, plugin.Migration != nil
	}
	return all, capped(errs)
}

// checkBindings returns an error for cards whose plug-in is missing.
func (w wishes) checkBindings() error {
	if w.vmi == nil {
		return nil
	}
	cards, _ := interfaces(nil, w.vmi, 1, bootOrder{})
	_, err := w.bindings.apply(cards)
	return err
}

// readPlugin reads a card whose binding is that of a plug-in. Its ports say something to the plug-in alone.
func (i *Interface) readPlugin(at *field.Path, given kubevirt.Interface, n network) field.ErrorList {
	i.Plugin, i.Binding = given.Binding.Name, ""
	if n.device != podDevice {
		i.Device = PluginInterface(given.Name)
	}
	var problems field.ErrorList
	if i.Plugin == "" {
		problems = append(problems, field.Required(at.Child("binding", "name"), ""))
	}
	if given.Bridge != nil || given.Masquerade != nil {
		problems = append(problems, refused(at, "an interface has one binding, not that of a plug-in and another"))
	}
	if len(given.PortRanges) > 0 {
		problems = append(problems, refused(at.Child("portRanges"), "goes with masquerade: the guest has all ports"))
	}
	if given.DHCPOptions != nil {
		problems = append(problems, refused(at.Child("dhcpOptions"), "the plug-in gives the guest its addresses"))
	}
	if n.pod != nil && n.pod.VMNetworkCIDR+n.pod.VMIPv6NetworkCIDR != "" {
		problems = append(problems, refused(at, "the network's vmNetworkCIDR goes with masquerade"))
	}
	return problems
}

// hashDigits are how many digits of a hash KubeVirt has in the name of an interface.
const hashDigits = 11

// PluginInterface returns the name of the pod's interface on a secondary network whose card has a network
// binding plug-in, by the network's name in the VMI. It is KubeVirt's, by which plug-ins find the interface.
func PluginInterface(network string) string {
	sum := sha256.Sum256([]byte(network))
	return "pod" + hex.EncodeToString(sum[:])[:hashDigits]
}
