package vmspec

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// housekeeping are the mounts that a kubelet or a container runtime gives to
// each container, whatever its pod says. A machine has no use for them.
var housekeeping = map[string]bool{
	"/etc/hosts":           true,
	"/etc/hostname":        true,
	"/etc/resolv.conf":     true,
	"/dev/shm":             true,
	"/dev/termination-log": true,
	"/var/run/secrets/kubernetes.io/serviceaccount": true,
}

// mounted is a volume that a container mounts. Its name is the last part of the
// path in the container: CRI does not tell the volume's own.
type mounted struct {
	name, at string
	image    string // id of an image volume
	path     string // of the disk below /disk in that image, if the mount's subPath says it
	secret   string // folder of the node with a Secret's files, of a volume that is no image
}

// mountsOf are a container's volumes, in its order.
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
		if housekeeping[m.GetContainerPath()] {
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
	return all, capped(errs)
}

func readMount(m *runtimeapi.Mount) (mounted, error) {
	volume := mounted{name: path.Base(m.GetContainerPath()), at: m.GetContainerPath(), image: m.GetImage().GetImage()}
	if volume.image == "" {
		volume.secret = secretFolder(m.GetHostPath())
	}
	if volume.image == "" && volume.secret == "" {
		return mounted{}, errVolume
	}
	if len(validation.IsDNS1123Label(volume.name)) > 0 {
		return mounted{}, fmt.Errorf("the last part of the path names the disk, and must be a DNS label "+
			"(a-z, 0-9 and - inside, at most %d characters); mount it elsewhere", maxLabel)
	}
	var err error
	volume.path, err = subPath(m.GetImageSubPath())
	return volume, err
}

// errVolume is what there is to say of a volume that becomes no disk.
var errVolume = errors.New("such volumes are not supported in a VM yet; remove it")

// secretFolder returns the folder of a mount if the kubelet has put Secrets into
// it, as its name tells; "" otherwise.
func secretFolder(host string) string {
	if !path.IsAbs(host) || path.Clean(host) != host {
		return ""
	}
	switch path.Base(path.Dir(host)) {
	case "kubernetes.io~secret", "kubernetes.io~projected":
		return host
	}
	return ""
}

// subPath turns a subPath of an image volume into a path below /disk.
func subPath(sub string) (string, error) {
	clean := path.Clean("/" + sub)
	if clean == "/" || clean == "/disk" {
		return "", nil
	}
	below, ok := strings.CutPrefix(clean, "/disk/")
	if !ok {
		return "", fmt.Errorf("subPath %q: disks are in /disk of an image; name one there", excerpt(sub))
	}
	return below, nil
}

// disk is the disk of an image volume that nothing more is said of.
func (m mounted) disk() Disk {
	return Disk{Name: m.name, Source: SourceVolume, Image: m.image, Path: m.path, Bus: BusVirtio}
}
