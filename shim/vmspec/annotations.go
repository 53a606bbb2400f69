package vmspec

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
)

// The annotations of a pod that speak to nodevirt. Any other key under
// [AnnotationPrefix] is an error.
const (
	// AnnotationPrefix begins each of them.
	AnnotationPrefix = "nodevirt.io/"
	// AnnotationVMI is the spec of a kubevirt.io/v1 VirtualMachineInstance as JSON.
	AnnotationVMI = AnnotationPrefix + "vmi"
	// AnnotationVMContainer names the one container of the pod that is the VM.
	AnnotationVMContainer = AnnotationPrefix + "vm-container"
	// AnnotationDiskMode says how registry disks reach the VM: a mode for all of
	// them, or DISK=MODE, or several with commas between.
	AnnotationDiskMode = AnnotationPrefix + "disk-mode"
	// AnnotationImports names disks that the node imports, with commas between.
	AnnotationImports = AnnotationPrefix + "imported-disks"
	// AnnotationNetworkDisks says which PVCs QEMU opens over the network, and where they
	// are: a JSON object of [NetworkDisk] by the names of volumes.
	AnnotationNetworkDisks = AnnotationPrefix + "network-disks"
	// AnnotationNetworkBindings has the network binding plug-ins of the VM's cards: a JSON object of
	// [NetworkBinding] by the plug-ins' names.
	AnnotationNetworkBindings = AnnotationPrefix + "network-bindings"
	// AnnotationDownwardMetrics lets the guest read metrics of its node.
	AnnotationDownwardMetrics = AnnotationPrefix + "downward-metrics"
	// AnnotationUserData is cloud-init's user data, word for word.
	AnnotationUserData = AnnotationPrefix + "cloud-init-user-data"
	// AnnotationMetaData is cloud-init's meta data, a YAML or JSON mapping.
	AnnotationMetaData = AnnotationPrefix + "cloud-init-meta-data"
	// AnnotationDiskOrigin names, for volumes, the registry disks that they begin as.
	AnnotationDiskOrigin = AnnotationPrefix + "disk-origin"
	// AnnotationBlankDisks names volumes in which the node creates a disk, and its size.
	AnnotationBlankDisks = AnnotationPrefix + "blank-disks"
	// AnnotationPreallocated names volumes, with commas, whose storage is allocated in advance.
	AnnotationPreallocated = AnnotationPrefix + "preallocated-volumes"
	// AnnotationCopiedVolumes names volumes, with commas, that become copies of the disks that a guest brings with its
	// migration: what they hold is lost.
	AnnotationCopiedVolumes = AnnotationPrefix + "copied-volumes"
	// AnnotationNetworkConfig is cloud-init's network configuration, word for word.
	AnnotationNetworkConfig = AnnotationPrefix + "cloud-init-network-config"
	// AnnotationSSHKeys are lines in the format of OpenSSH's authorized_keys.
	AnnotationSSHKeys = AnnotationPrefix + "ssh-authorized-keys"
	// AnnotationMigration names a migration by its UID. The pod's VM does not boot: it waits
	// for the guest.
	AnnotationMigration = order.Annotation
)

// maxAnnotations bounds the keys and values under AnnotationPrefix together,
// in bytes. It is what Kubernetes allows for all annotations of an object;
// crictl has no such bound.
const maxAnnotations = 256 << 10

// Annotations returns the keys that a pod may use, sorted.
func Annotations() []string {
	return []string{
		AnnotationMetaData,
		AnnotationNetworkConfig,
		AnnotationUserData,
		AnnotationBlankDisks,
		AnnotationCopiedVolumes,
		AnnotationDiskMode,
		AnnotationDiskOrigin,
		AnnotationDownwardMetrics,
		AnnotationImports,
		AnnotationMigration,
		AnnotationNetworkBindings,
		AnnotationNetworkDisks,
		AnnotationPreallocated,
		AnnotationSSHKeys,
		AnnotationVMContainer,
		AnnotationVMI,
	}
}

// VMContainer returns the name of the one container that is the VM, or "" where
// the pod leaves it to the images: every image that holds a disk is then a VM.
func VMContainer(annotations map[string]string) string {
	return annotations[AnnotationVMContainer]
}

// Migration returns the UID of the migration whose guest a pod waits for; empty for a pod
// whose VM boots.
func Migration(annotations map[string]string) string { return annotations[AnnotationMigration] }

// AddressMoves reports whether a pod's author says that its network gives the pod's address to the
// target of a migration too. As in KubeVirt, any value of the annotation says so, or the registration of the
// network binding plug-in of the pod network's card.
func AddressMoves(annotations map[string]string) bool {
	if _, moves := annotations[kubevirt.AllowPodBridgeNetworkLiveMigrationAnnotation]; moves {
		return true
	}
	if annotations[AnnotationNetworkBindings] == "" {
		return false
	}
	return slices.ContainsFunc(cardsOf(annotations), func(i Interface) bool { return i.Moves && i.OnPodNetwork() })
}

// TakesPodAddress reports whether the guest of a pod with these annotations has the pod's address.
func TakesPodAddress(annotations map[string]string) bool {
	w, err := readAnnotations(annotations)
	if err != nil || w.vmi == nil {
		return err == nil
	}
	return Spec{Interfaces: cardsOf(annotations)}.TakesPodAddress()
}

// GuestInterfaces returns the names, in a pod with these annotations, of the interfaces whose addresses its guest has.
// The interface of the pod network is one only if the pod's address moves with the guest.
func GuestInterfaces(annotations map[string]string) []string {
	var all []string
	if AddressMoves(annotations) && TakesPodAddress(annotations) {
		all = append(all, podDevice)
	}
	for _, i := range cardsOf(annotations) {
		if i.Binding != BindingMasquerade && !i.OnPodNetwork() {
			all = append(all, i.Device)
		}
	}
	return all
}

// cardsOf returns the network cards of a pod with these annotations; none if they are wrong, or of a plain pod.
func cardsOf(annotations map[string]string) []Interface {
	w, err := readAnnotations(annotations)
	if err != nil || w.vmi == nil {
		return nil
	}
	all, _ := interfaces(nil, w.vmi, 1, bootOrder{})
	all, _ = w.bindings.apply(all) // a card of an unknown plug-in has no binding
	return all
}

// migrationUID reports whether a text can be the UID of an object.
func migrationUID(text string) bool {
	return len(text) <= 64 && len(validation.IsDNS1123Label(text)) == 0
}

// Ignition returns the configuration for Ignition in a pod's annotations, word for word; empty for none. Its key is KubeVirt's.
func Ignition(annotations map[string]string) string { return annotations[kubevirt.IgnitionAnnotation] }

// speaks reports whether a pod has annotations of nodevirt.
func speaks(annotations map[string]string) bool {
	for key := range annotations {
		if strings.HasPrefix(key, AnnotationPrefix) {
			return true
		}
	}
	return false
}

// wishes is what a pod's annotations ask for, decoded and checked as far as
// that goes without a container.
type wishes struct {
	vmi           *kubevirt.VirtualMachineInstanceSpec // nil for a plain pod
	seeded        bool                                 // any of the fields below was asked for
	userData      string
	networkConfig string
	metaData      metaData
	sshKeys       []string
	modes         modes
	imports       []string
	origins       map[string]string // names of registry disks, by PVC
	blanks        blanks
	copies        copies
	preallocated  preallocated
	network       map[string]NetworkDisk
	metrics       bool
	bindings      bindings
}

// readAnnotations decodes a pod's annotations. Its error names every problem.
func readAnnotations(annotations map[string]string) (wishes, error) {
	if err := checkAnnotations(annotations); err != nil {
		return wishes{}, err
	}
	var w wishes
	var errs []error
	for key, value := range annotations {
		switch key {
		case AnnotationUserData:
			w.seeded, w.userData = true, value
		case AnnotationNetworkConfig:
			w.seeded, w.networkConfig = true, value
		case AnnotationMetaData:
			m, err := parseMetaData(value)
			w.seeded, w.metaData, errs = true, m, append(errs, err)
		case AnnotationSSHKeys:
			keys, err := AuthorizedKeys(AnnotationSSHKeys, value)
			if len(keys) == 0 && err == nil {
				err = errors.New(AnnotationSSHKeys + ": holds no key; remove it or add one")
			}
			w.seeded, w.sshKeys, errs = true, keys, append(errs, err)
		case AnnotationDiskMode:
			m, err := parseModes(value)
			w.modes, errs = m, append(errs, err)
		case AnnotationImports:
			names, err := parseImports(value)
			w.imports, errs = names, append(errs, err)
		case AnnotationNetworkDisks:
			all, err := ParseNetworkDisks(value)
			w.network, errs = all, append(errs, err)
		case AnnotationDownwardMetrics:
			w.metrics = true
		case AnnotationNetworkBindings:
			b, err := parseBindings(value)
			w.bindings, errs = b, append(errs, err)
		case AnnotationDiskOrigin:
			o, err := parseOrigins(value)
			w.origins, errs = o, append(errs, err)
		case AnnotationBlankDisks:
			b, err := parseBlanks(value)
			w.blanks, errs = b, append(errs, err)
		case AnnotationPreallocated:
			p, err := parsePreallocated(value)
			w.preallocated, errs = p, append(errs, err)
		case AnnotationCopiedVolumes:
			c, err := parseCopies(value, annotations[AnnotationMigration])
			w.copies, errs = c, append(errs, err)
		case AnnotationVMI:
			vmi, problems := DecodeVMI([]byte(value))
			w.vmi, errs = vmi, append(errs, annotationError(problems))
		}
	}
	return w, joinSorted(errs)
}

// onVolumes applies the annotations about volumes to the disks on them.
func (w wishes) onVolumes(disks []Disk) error {
	return errors.Join(w.blanks.apply(disks), w.copies.apply(disks), w.preallocated.apply(disks))
}

// checkAnnotations checks keys and sizes, so that no decoder sees more than
// maxAnnotations.
func checkAnnotations(annotations map[string]string) error {
	var errs []error
	total := 0
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, AnnotationPrefix) {
			continue
		}
		value := annotations[key]
		total += len(key) + len(value)
		switch {
		case !slices.Contains(Annotations(), key):
			errs = append(errs, fmt.Errorf("annotation %s: unknown; known are %s",
				excerpt(key), strings.Join(Annotations(), ", ")))
		case !utf8.ValidString(value):
			errs = append(errs, fmt.Errorf("%s: not UTF-8 text", key))
		case key == AnnotationMigration && !migrationUID(value):
			errs = append(errs, fmt.Errorf("%s: %q is not a migration's UID", key, excerpt(value)))
		case key == AnnotationVMContainer && len(validation.IsDNS1123Label(value)) > 0:
			errs = append(errs, fmt.Errorf("%s: %q is not a container's name", key, excerpt(value)))
		}
	}
	if text := Ignition(annotations); len(text) > maxAnnotations || !utf8.ValidString(text) {
		errs = append(errs, fmt.Errorf("annotation %s: at most %d bytes of UTF-8 text are allowed", kubevirt.IgnitionAnnotation, maxAnnotations))
	}
	if total > maxAnnotations {
		errs = append(errs, fmt.Errorf("annotations under %s: %d bytes; at most %d are allowed",
			AnnotationPrefix, total, maxAnnotations))
	}
	return capped(errs)
}

// joinSorted joins errors in the order of their texts: maps have none.
func joinSorted(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
