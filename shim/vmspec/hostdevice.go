package vmspec

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// maxHostDevices bounds the devices of each kind, and the ResourceClaims of a VMI.
const maxHostDevices = 32

// HostDeviceKind says where a VMI asks for a device, and by what name libvirt knows it.
type HostDeviceKind string

// The kinds of host devices.
const (
	HostDeviceGPU     HostDeviceKind = "gpu"
	HostDeviceGeneric HostDeviceKind = "hostdevice"
	HostDeviceSRIOV   HostDeviceKind = "sriov"
)

// HostDevice is a device of the node that the guest gets. One of Resource, ResourceClaim and
// Network says how the pod has it; the node finds out which device that is.
type HostDevice struct {
	Kind HostDeviceKind `json:"kind"`
	Name string         `json:"name"`
	// Path is the field that asks for the device, for errors.
	Path string `json:"path"`
	// Resource is the extended resource of a device plug-in.
	Resource string `json:"resource,omitempty"`
	// ResourceClaim is a request of the pod's ResourceClaims.
	ResourceClaim *DeviceClaim `json:"resourceClaim,omitempty"`
	// Network is the interface of a secondary network, such as net1.
	Network string `json:"network,omitempty"`
	// PCI is the device's address in the guest.
	PCI PCIAddress `json:"pci,omitempty"`
	// BootOrder is the place of a network card, as that of an [Interface].
	BootOrder uint `json:"bootOrder,omitempty"`
	// Picture says what a GPU shows; nil if its author says nothing.
	Picture *Picture `json:"picture,omitempty"`
	// Tag is the author's name of the device's role, for the guest's metadata.
	Tag string `json:"tag,omitempty"`
}

// Picture is what a virtual GPU shows on the VM's display.
type Picture struct {
	// Enabled is whether a mediated device shows a picture. Explicit says that the author
	// wrote so, which refuses other devices.
	Enabled  bool `json:"enabled"`
	Explicit bool `json:"explicit,omitempty"`
	// RAMFB shows one before the guest has a driver.
	RAMFB bool `json:"ramFB,omitempty"`
}

// DeviceClaim is one request of a ResourceClaim of the pod.
type DeviceClaim struct {
	// Name is the ResourceClaim's own name. For a ResourceClaim of a template, it is the ResourceClaim's name in
	// the pod.
	Name     string `json:"name"`
	Template bool   `json:"template,omitempty"`
	// Request is the name of the request.
	Request string `json:"request"`
}

// hostDeviceRows are the fields of devices of the node.
func hostDeviceRows() []fields.Row {
	var rows []fields.Row
	for _, list := range []string{"domain.devices.gpus", "domain.devices.hostDevices"} {
		rows = append(
			rows,
			fields.At(list, fields.List(maxHostDevices)),
			fields.At(list+"[].name", deviceName),
			fields.At(list+"[].deviceName", extendedResource),
			fields.At(list+"[].claimName", fields.Label),
			fields.At(list+"[].requestName", fields.Label),
			fields.At(list+"[].tag", tag),
		)
	}
	return append(
		rows,
		fields.At("domain.devices.gpus[].virtualGPUOptions.display.enabled", fields.Boolean),
		fields.At("domain.devices.gpus[].virtualGPUOptions.display.ramFB.enabled", fields.Boolean),
		fields.At("domain.devices.interfaces[].sriov", fields.Object),
		fields.At("networks[].resourceClaim.claimName", fields.Label),
		fields.At("networks[].resourceClaim.requestName", fields.Label),
		fields.At("resourceClaims", fields.List(maxHostDevices)),
		fields.At("resourceClaims[].name", fields.Label),
		fields.At("resourceClaims[].resourceClaimName", fields.Subdomain),
		fields.At("resourceClaims[].resourceClaimTemplateName", fields.Subdomain),
	)
}

// IsExtendedResource reports whether a device plug-in may offer a resource of this name.
func IsExtendedResource(name string) bool {
	return extendedResource(field.NewPath("name"), name) == nil
}

// extendedResource takes the name of a resource that a device plug-in offers. Kubernetes
// has the names below kubernetes.io for itself.
var extendedResource = fields.String(func(at *field.Path, s string) *field.Error {
	domain, _, _ := strings.Cut(s, "/")
	if domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || len(s) > maxResource || !resourceName.MatchString(s) {
		return invalid(at, s, "must be the resource of a device plug-in, such as example.com/gpu")
	}
	return nil
})

// maxResource is shorter than a label's name by Kubernetes' prefix "requests.".
const maxResource = 244

var resourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// hostDevices reads the devices that a VMI asks for beside its network cards.
func hostDevices(root *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) ([]HostDevice, field.ErrorList) {
	claims, problems := readClaims(root.Child("resourceClaims"), vmi.ResourceClaims)
	devices := root.Child("domain", "devices")
	reader := hostDeviceReader{claims: claims, names: map[string]bool{}, used: map[DeviceClaim]bool{}}
	for i, g := range vmi.Domain.Devices.GPUs {
		at := devices.Child("gpus").Index(i)
		one := HostDevice{Kind: HostDeviceGPU, Name: g.Name, Resource: g.DeviceName, Tag: g.Tag}
		if o := g.VirtualGPUOptions; o != nil && o.Display != nil {
			one.Picture = &Picture{
				Enabled: isOr(o.Display.Enabled, true), Explicit: isOr(o.Display.Enabled, false),
				RAMFB: o.Display.RamFB == nil || isOr(o.Display.RamFB.Enabled, true),
			}
			if one.Picture.Explicit && !hasDisplay(vmi.Domain.Devices) {
				reader.problems = append(reader.problems,
					refused(at.Child("virtualGPUOptions", "display", "enabled"), "requires autoattachGraphicsDevice"))
			}
		}
		reader.add(at, one, g.ClaimRequest)
	}
	for i, d := range vmi.Domain.Devices.HostDevices {
		reader.add(devices.Child("hostDevices").Index(i),
			HostDevice{Kind: HostDeviceGeneric, Name: d.Name, Resource: d.DeviceName, Tag: d.Tag}, d.ClaimRequest)
	}
	reader.cards(root, vmi)
	return reader.all, append(problems, reader.problems...)
}

type hostDeviceReader struct {
	claims   map[string]DeviceClaim
	names    map[string]bool
	used     map[DeviceClaim]bool
	all      []HostDevice
	problems field.ErrorList
}

func (r *hostDeviceReader) refuse(problem *field.Error) { r.problems = append(r.problems, problem) }

// add adds a device, and refuses one that does not name its device or ResourceClaim.
func (r *hostDeviceReader) add(at *field.Path, one HostDevice, claim *kubevirt.ClaimRequest) {
	switch {
	case one.Name == "":
		r.refuse(field.Required(at.Child("name"), ""))
	case r.names[one.Name]:
		r.refuse(field.Duplicate(at.Child("name"), one.Name))
	}
	r.names[one.Name] = true
	claimed := claim != nil && *claim != kubevirt.ClaimRequest{}
	switch {
	case one.Resource == "" && !claimed:
		r.refuse(field.Required(at.Child("deviceName"), "or claimName and requestName"))
	case one.Resource != "" && claimed:
		r.refuse(refused(at, "a device has either deviceName or claimName"))
	case claimed:
		one.ResourceClaim = r.claim(at, *claim)
	}
	one.Path = at.String()
	r.all = append(r.all, one)
}

// ResourceClaim returns the request of a ResourceClaim, nil after a problem. A request is one device.
func (r *hostDeviceReader) claim(at *field.Path, given kubevirt.ClaimRequest) *DeviceClaim {
	claim, known := r.claims[given.ClaimName]
	switch {
	case given.ClaimName == "":
		r.refuse(field.Required(at.Child("claimName"), ""))
		return nil
	case given.RequestName == "":
		r.refuse(field.Required(at.Child("requestName"), ""))
		return nil
	case !known:
		r.refuse(invalid(at.Child("claimName"), given.ClaimName, "resourceClaims has no entry of this name"))
		return nil
	}
	claim.Request = given.RequestName
	if r.used[claim] {
		r.refuse(refused(at.Child("requestName"), "another device has request %q of this ResourceClaim", given.RequestName))
	}
	r.used[claim] = true
	return &claim
}

// cards adds the network cards that are virtual functions of the node's.
func (r *hostDeviceReader) cards(root *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec) {
	networks, _ := readNetworks(root.Child("networks"), vmi.Networks) // interfaces reports problems
	for i, given := range vmi.Domain.Devices.Interfaces {
		if given.SRIOV == nil {
			continue
		}
		at := root.Child("domain", "devices", "interfaces").Index(i)
		one := HostDevice{
			Kind: HostDeviceSRIOV, Name: given.Name, Path: at.String(), PCI: PCIAddress(given.PciAddress), Tag: given.Tag,
		}
		if given.BootOrder != nil {
			one.BootOrder = *given.BootOrder
		}
		if n := networks[given.Name]; n.claim != nil {
			one.ResourceClaim = r.claim(n.at, *n.claim)
		} else {
			one.Network = n.device
		}
		r.all = append(r.all, one)
	}
}

// readClaims returns the ResourceClaims by their names in the VMI, without a request.
func readClaims(at *field.Path, given []kubevirt.VirtualMachineInstanceResourceClaim) (map[string]DeviceClaim, field.ErrorList) {
	var problems field.ErrorList
	all := map[string]DeviceClaim{}
	for i, c := range given {
		at := at.Index(i)
		_, twice := all[c.Name]
		claim, template := c.ResourceClaimName != nil, c.ResourceClaimTemplateName != nil
		switch {
		case c.Name == "":
			problems = append(problems, field.Required(at.Child("name"), ""))
		case twice:
			problems = append(problems, field.Duplicate(at.Child("name"), c.Name))
		}
		switch {
		case claim && template:
			problems = append(problems, refused(at, "a ResourceClaim has either resourceClaimName or resourceClaimTemplateName"))
		case template:
			all[c.Name] = DeviceClaim{Name: c.Name, Template: true}
		case claim:
			all[c.Name] = DeviceClaim{Name: *c.ResourceClaimName}
		default:
			problems = append(problems, field.Required(at.Child("resourceClaimName"), "or resourceClaimTemplateName"))
		}
	}
	return all, problems
}
