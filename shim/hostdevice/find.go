package hostdevice

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// ErrNotGiven says that the kubelet did not hand over a device that a VM asks for.
var ErrNotGiven = errors.New("the kubelet handed over no such device")

// maxFile bounds a file with information about devices, in bytes.
const maxFile = 1 << 20

// Find returns the devices of a VM, in the order of its spec. Config is that of the VM's
// container, sandboxID containerd's name of its pod. Errors name the fields.
func (n Node) Find(sandboxID string, wanted []vmspec.HostDevice, config *runtimeapi.ContainerConfig) ([]Device, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	g, err := n.given(config)
	if err != nil {
		return nil, err
	}
	f := finder{node: n, sandboxID: sandboxID, given: g, used: map[string]bool{}}
	var all []Device
	var errs []error
	for _, w := range wanted {
		d, err := f.find(w)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w.Path, err))
			continue
		}
		all = append(all, d)
	}
	return all, errors.Join(errs...)
}

type finder struct {
	node      Node
	sandboxID string
	given     given
	used      map[string]bool // addresses: resources may share devices
}

func (f *finder) find(w vmspec.HostDevice) (Device, error) {
	var kind Kind
	var address string
	var err error
	switch {
	case w.ResourceClaim != nil:
		kind, address, err = f.ofResourceClaim(*w.ResourceClaim)
	case w.Network != "":
		kind = PCI
		address, err = f.node.ofNetwork(f.sandboxID, w.Network)
	default:
		kind, address, err = f.ofPlugin(w)
	}
	if err == nil && kind != MDev && w.Picture != nil && w.Picture.Explicit {
		err = fmt.Errorf("virtualGPUOptions.display.enabled: the GPU is a %s device, and only a mediated device shows a picture; remove it", kind)
	}
	if err == nil && f.used[address] {
		err = fmt.Errorf("%s device %s is another field's already", kind, address)
	}
	if err != nil {
		return Device{}, err
	}
	f.used[address] = true
	return f.node.device(kind, address, f.given)
}

// ofPlugin returns the next address of an extended resource, by the variables that
// KubeVirt's device plug-ins set.
func (f *finder) ofPlugin(w vmspec.HostDevice) (Kind, string, error) {
	prefixes := []struct {
		kind   Kind
		prefix string
	}{{PCI, kubevirt.PCIResourcePrefix}, {MDev, kubevirt.MDevResourcePrefix}, {USB, kubevirt.USBResourcePrefix}}
	if w.Kind == vmspec.HostDeviceGPU {
		prefixes = prefixes[:2]
	}
	name := strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(w.Resource))
	var variables []string
	for _, p := range prefixes {
		variable := p.prefix + "_" + name
		for address := range strings.SplitSeq(f.given.env[variable], ",") {
			if address = strings.ToLower(strings.TrimSpace(address)); address != "" && !f.used[address] {
				return p.kind, address, nil
			}
		}
		variables = append(variables, variable)
	}
	return "", "", fmt.Errorf("%w of the resource %q: its device plug-in must set one of %s, with an address for each device",
		ErrNotGiven, w.Resource, strings.Join(variables, ", "))
}

// mdevAttribute is KubeVirt's name of the attribute with a mediated device's UUID.
const mdevAttribute = "mdevUUID"

// pciAttribute is Kubernetes' name of the attribute with a PCI address.
const pciAttribute = "resource.kubernetes.io/pciBusID"

// ofResourceClaim returns the device of a ResourceClaim, from the metadata that its DRA driver
// mounts into the container (Kubernetes' enhancement 5304). A mediated device may name its parent's PCI
// address as well.
func (f *finder) ofResourceClaim(claim vmspec.DeviceClaim) (Kind, string, error) {
	folder := metadata.ResourceClaimsSubDir
	if claim.Template {
		folder = metadata.ResourceClaimTemplatesSubDir
	}
	folder = path.Join(metadata.ContainerDir, folder, claim.Name, claim.Request)
	var files []string
	for inside, host := range f.given.files {
		if path.Dir(inside) == folder && strings.HasSuffix(inside, metadata.MetadataFileSuffix) {
			files = append(files, host)
		}
	}
	slices.Sort(files)
	if len(files) != 1 {
		return "", "", fmt.Errorf("%w of request %q of the ResourceClaim: %d files with device metadata are mounted at %s, and one is needed; "+
			"enable metadata in the ResourceClaim's DRA driver", ErrNotGiven, claim.Request, len(files), folder)
	}
	devices, err := f.node.metadata(files[0], claim.Request)
	if err != nil {
		return "", "", err
	}
	if len(devices) != 1 {
		return "", "", fmt.Errorf("request %q of the ResourceClaim has %d devices; make it one with a count of 1", claim.Request, len(devices))
	}
	for _, a := range []struct {
		kind Kind
		name string
	}{{MDev, mdevAttribute}, {PCI, pciAttribute}} {
		for name, value := range devices[0].Attributes {
			if string(name) == a.name && value.StringValue != nil && *value.StringValue != "" {
				return a.kind, strings.ToLower(*value.StringValue), nil
			}
		}
	}
	return "", "", fmt.Errorf("device %q of the ResourceClaim has neither the attribute %s nor %s; use a DRA driver that publishes one",
		devices[0].Name, mdevAttribute, pciAttribute)
}

// metadata reads the devices of a request. The request of a ResourceClaim with alternatives is
// followed by the chosen one's name.
func (n Node) metadata(file, request string) ([]metadata.Device, error) {
	f, err := os.Open(filepath.Join(n.Root, file))
	if err != nil {
		return nil, fmt.Errorf("read device metadata: %w", err)
	}
	defer f.Close()
	var all metadata.DeviceMetadata
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(io.LimitReader(f, maxFile)), &all); err != nil {
		return nil, fmt.Errorf("read device metadata %s: %w", file, err)
	}
	for _, r := range all.Requests {
		if name, _, _ := strings.Cut(r.Name, "/"); name == request {
			return r.Devices, nil
		}
	}
	return nil, nil
}

// deviceInfoDir is where CNI plug-ins describe the devices of interfaces (the Network Plumbing
// Working Group's "Device Information Specification"). Multus names the files after network,
// sandbox and interface, and puts their content into the pod's annotation
// k8s.v1.cni.cncf.io/network-status, which comes too late for the request to make the VM.
const deviceInfoDir = "/var/run/k8s.cni.cncf.io/devinfo/cni"

// ofNetwork returns the PCI address of the device that a secondary network gave to the pod.
func (n Node) ofNetwork(sandboxID, device string) (string, error) {
	missing := fmt.Errorf("%w for the network's interface %s: Multus wrote no device information about it to %s; "+
		"see whether the network is SR-IOV, and its resource requested", ErrNotGiven, device, deviceInfoDir)
	root, err := os.OpenRoot(filepath.Join(n.Root, deviceInfoDir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", missing
	}
	if err != nil {
		return "", fmt.Errorf("read device information: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return "", fmt.Errorf("read device information: %w", err)
	}
	at := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), "-"+sandboxID+"_"+device) })
	if at < 0 || sandboxID == "" {
		return "", missing
	}
	f, err := root.Open(entries[at].Name())
	if err != nil {
		return "", fmt.Errorf("read device information: %w", err)
	}
	defer f.Close()
	var info struct {
		PCI struct {
			Address string `json:"pci-address"`
		} `json:"pci"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxFile)).Decode(&info); err != nil {
		return "", fmt.Errorf("read device information %s: %w", entries[at].Name(), err)
	}
	if info.PCI.Address == "" {
		return "", missing
	}
	return strings.ToLower(info.PCI.Address), nil
}
