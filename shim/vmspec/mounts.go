package vmspec

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// housekeeping lists the mounts that a kubelet or a container runtime adds to each
// container, whatever its pod says. A VM does not need them.
var housekeeping = map[string]bool{
	"/etc/hosts":           true,
	"/etc/hostname":        true,
	"/etc/resolv.conf":     true,
	"/dev/shm":             true,
	"/dev/termination-log": true,
	"/var/run/secrets/kubernetes.io/serviceaccount": true,
}

// mounted is a volume that a container mounts. Its name is the last part of the
// path in the container: CRI does not pass on the volume's name.
type mounted struct {
	name, at string
	image    string // id of an image volume
	path     string // of the disk below /disk in that image, from the mount's subPath; may be empty
	files    string // folder of the node with the files of a volume that is no image, such as a Secret
	host     string // path of any other volume on the node
	block    bool   // it is a block device
	readOnly bool   // it is of host, and can't be written
}

// mountsOf returns a container's volumes, in its order.
type mountsOf []mounted

func (all mountsOf) find(name string) (mounted, bool) {
	for _, m := range all {
		if m.name == name {
			return m, true
		}
	}
	return mounted{}, false
}

// readMounts reads the volumes of a container.
func readMounts(c *runtimeapi.ContainerConfig) (mountsOf, error) {
	var all mountsOf
	var errs []error
	for _, m := range c.GetMounts() {
		if housekeeping[m.GetContainerPath()] || ofTerminationMessage(c, m) || slices.Contains([]string{HooksPath, KernelPath, StatePath, CheckpointPath}, m.GetContainerPath()) {
			continue
		}
		volume, err := readMount(m)
		if err == nil {
			if other, taken := all.find(volume.name); taken {
				err = fmt.Errorf("the disk name %q is that of %s, too; mount one of them elsewhere",
					volume.name, excerpt(other.at))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("container %s: volume mounted at %s: %w",
				excerpt(c.GetMetadata().GetName()), excerpt(m.GetContainerPath()), err))
			continue
		}
		all = append(all, volume)
	}
	for _, d := range c.GetDevices() {
		if ofDevicePlugin(d.GetHostPath()) {
			continue
		}
		volume := mounted{
			name: path.Base(d.GetContainerPath()), at: d.GetContainerPath(), host: d.GetHostPath(), block: true,
			readOnly: !strings.Contains(d.GetPermissions(), "w"),
		}
		err := checkName(volume.name)
		if err == nil && !printable(volume.host) {
			err = fmt.Errorf("its path on the node, %.*q, is not UTF-8 or has characters that cannot be printed; rename the device",
				maxPath, volume.host)
		}
		if other, taken := all.find(volume.name); taken && err == nil {
			err = fmt.Errorf("the disk name %q is that of %s, too; give one of them another path", volume.name, excerpt(other.at))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("container %s: device %s: %w",
				excerpt(c.GetMetadata().GetName()), excerpt(d.GetContainerPath()), err))
			continue
		}
		all = append(all, volume)
	}
	return all, capped(errs)
}

func readMount(m *runtimeapi.Mount) (mounted, error) {
	volume := mounted{name: path.Base(m.GetContainerPath()), at: m.GetContainerPath(), image: m.GetImage().GetImage()}
	if volume.image == "" {
		volume.files = filesFolder(m.GetHostPath())
	}
	if volume.image == "" && volume.files == "" {
		if volume.host = m.GetHostPath(); !path.IsAbs(volume.host) || path.Clean(volume.host) != volume.host {
			return mounted{}, errVolume
		}
		if !printable(volume.host) {
			return mounted{}, fmt.Errorf("its path on the node, %.*q, is not UTF-8 or has characters that cannot be printed; "+
				"rename the folder", maxPath, volume.host)
		}
		if kind := kubeletKind.FindStringSubmatch(volume.host); kind != nil {
			return mounted{}, fmt.Errorf("volumes of kind %s are not supported in a VM yet; remove it", kind[1])
		}
		volume.readOnly = m.GetReadonly()
	}
	if err := checkName(volume.name); err != nil {
		return mounted{}, err
	}
	var err error
	volume.path, err = subPath(m.GetImageSubPath())
	return volume, err
}

// errVolume is the error for a volume that can't become a disk.
var errVolume = errors.New("such volumes are not supported in a VM yet; remove it")

// errReadOnly is the error for a read-only volume of a pod without a VMI.
var errReadOnly = errors.New("a VM writes to its disk, and this is read-only; mount it otherwise, or not at all")

// filesFolder returns the folder of a mount if the kubelet has put the files of
// Kubernetes objects into it, as the folder's name says; "" otherwise.
func filesFolder(host string) string {
	if !path.IsAbs(host) || path.Clean(host) != host || !printable(host) {
		return ""
	}
	switch path.Base(path.Dir(host)) {
	case "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~configmap", "kubernetes.io~downward-api":
		return host
	}
	return ""
}

// kubeletKind finds, in the path of a volume in the kubelet's folders, the kinds that
// hold files for a container.
var kubeletKind = regexp.MustCompile(`/volumes/kubernetes\.io~(configmap|downward-api|empty-dir)/`)

func checkName(name string) error {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return nil
	}
	return fmt.Errorf("the last part of the path names the disk, and must be a DNS label "+
		"(a-z, 0-9 and - inside, at most %d characters); mount it elsewhere", maxLabel)
}

// printable reports whether records, libvirt's XML and logs can hold a path as it is.
func printable(path string) bool {
	return utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsGraphic(r) })
}

// subPath turns a subPath of an image volume into a path below /disk.
func subPath(sub string) (string, error) {
	clean := path.Clean("/" + sub)
	if clean == "/" || clean == "/disk" {
		return "", nil
	}
	below, ok := strings.CutPrefix(clean, "/disk/")
	if ok && !printable(below) {
		return "", fmt.Errorf("subPath %.*q is not UTF-8 or has characters that cannot be printed; rename the file in the image",
			maxPath, sub)
	}
	if !ok {
		return "", fmt.Errorf("subPath %q: disks are in /disk of an image; name one there", excerpt(sub))
	}
	return below, nil
}

// what names the volume in errors.
func (m mounted) what() string {
	if m.block {
		return "device " + excerpt(m.at)
	}
	return "volume mounted at " + excerpt(m.at)
}

// disk returns the disk of a volume without further options.
func (m mounted) disk() Disk {
	if m.image == "" {
		return Disk{Name: m.name, Source: SourcePVC, Host: m.host, Block: m.block, Bus: BusVirtio}
	}
	return Disk{Name: m.name, Source: SourceVolume, Image: m.image, Path: m.path, Bus: BusVirtio}
}
