package vmspec

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// volume is one of a VMI's, and what a disk of its name is made of.
type volume struct {
	at   *field.Path
	name string
	Disk // the fields that the volume says
	// table says that the volume holds an ACPI table.
	table bool
	// filesystem says that the guest mounts the volume.
	filesystem bool
}

// volumes is what a VMI's volumes hold.
type volumes struct {
	all       []volume
	mounts    *mountsOf // the container's, nil where it is not known yet
	cloudInit *cloudInit
	network   map[string]NetworkDisk // of PVCs that the container does not mount
	// credentials is the number of access credentials, whose Secrets are mounted, too.
	credentials int
}

func (v *volumes) find(name string) *volume {
	i := slices.IndexFunc(v.all, func(o volume) bool { return o.name == name })
	if i < 0 {
		return nil
	}
	return &v.all[i]
}

func (v *volumes) of(source Source) *volume {
	i := slices.IndexFunc(v.all, func(o volume) bool { return o.Source == source })
	if i < 0 {
		return nil
	}
	return &v.all[i]
}

func readVolumes(root *field.Path, vmi *kubevirt.VirtualMachineInstanceSpec, r request) (volumes, field.ErrorList) {
	at := root.Child("volumes")
	v := volumes{mounts: r.mounts, network: r.network, credentials: len(vmi.AccessCredentials)}
	var problems field.ErrorList
	for i, g := range vmi.Volumes {
		at := at.Index(i)
		if g.Name == "" {
			problems = append(problems, field.Required(at.Child("name"), ""))
		} else if v.find(g.Name) != nil {
			problems = append(problems, field.Duplicate(at.Child("name"), g.Name))
		}
		disk, p := v.read(at, g)
		problems = append(problems, p...)
		v.all = append(v.all, volume{at: at, name: g.Name, Disk: disk})
	}
	if len(problems) > 0 && v.mounts != nil {
		return v, problems // what is missing may be what is wrong
	}
	return v, append(problems, v.checkWhole(at, r)...)
}

// checkWhole returns the problems that no volume shows by itself.
func (v *volumes) checkWhole(at *field.Path, r request) field.ErrorList {
	if v.mounts == nil {
		return nil
	}
	var problems field.ErrorList
	for _, m := range *v.mounts {
		o := v.find(m.name)
		path := v.ofContainerPath(m)
		if o == path {
			o = nil // its name happens to be the last part of the path
		}
		if path != nil && (o != nil || v.ofCredential(m.name) || v.ofNetworkDisk(m)) {
			problems = append(problems, refused(path.at, "what container %s mounts at %s is for another volume", r.container, excerpt(m.at)))
			continue
		}
		if o == nil && (path != nil || v.ofCredential(m.name) || v.ofNetworkDisk(m)) {
			continue
		}
		if o == nil {
			problems = append(problems, refused(at, "container %s mounts a volume at %s, and none of these has the name %q",
				r.container, excerpt(m.at), m.name))
			continue
		}
		needs := o.Source.Kind().Needs
		switch {
		case m.files != "" && needs != NeedFiles && (needs != NeedSecrets || v.cloudInit.folder == ""):
			problems = append(problems, refused(o.at, "container %s mounts files, such as a Secret, at %s, and this volume takes none",
				r.container, excerpt(m.at)))
		case m.host != "" && !needs.takesVolume():
			problems = append(problems, refused(o.at, "container %s has a volume at %s, and this one takes none; mount it elsewhere",
				r.container, excerpt(m.at)))
		}
	}
	return problems
}

// ofCredential reports whether a mount has the name of a credential's Secret.
func (v *volumes) ofCredential(name string) bool {
	for i := range v.credentials {
		if name == credentialName(i) {
			return true
		}
	}
	return false
}

// ofNetworkDisk reports whether a mount is the Secret of a network disk.
func (v *volumes) ofNetworkDisk(m mounted) bool {
	for _, n := range v.network {
		if m.files != "" && n.SecretMount == m.name {
			return true
		}
	}
	return false
}

// read returns what a volume says of its disk.
func (v *volumes) read(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	known, given := volumeFields(g)
	switch len(given) {
	case 0:
		last := len(known) - 1
		return Disk{}, field.ErrorList{field.Required(at, strings.Join(known[:last], ", ")+" or "+known[last])}
	case 1:
		return given[0].read(v, at.Child(given[0].Field), g)
	}
	var names []string
	for _, k := range given {
		names = append(names, k.Field)
	}
	return Disk{}, field.ErrorList{refused(at, "%s: use one of them", strings.Join(names, " and "))}
}

// cloudInitDisk reads the seed's volume.
func (v *volumes) cloudInitDisk(at *field.Path, g kubevirt.Volume, source Source) (Disk, field.ErrorList) {
	if v.cloudInit != nil {
		return Disk{}, field.ErrorList{refused(at, "one cloud-init volume per VM is supported")}
	}
	c, problems := readCloudInit(at, cloudInitOf(g))
	c.source = source
	if c.userDataSecret || c.networkSecret {
		problems = append(problems, c.find(at, g.Name, v.mounts)...)
	}
	v.cloudInit = c
	return Disk{Source: source}, problems
}

// registryDisk reads a containerDisk: the disk of an image that the container mounts
// at a path which ends in the volume's name, or else of the container's own image.
func (v *volumes) registryDisk(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	name, given := g.Name, g.ContainerDisk.Path
	path, problems := belowDisk(given), field.ErrorList(nil)
	var m mounted
	isMounted := false
	if v.mounts != nil {
		m, isMounted = v.mounts.find(name)
	}
	own := v.of(SourceImage)
	switch {
	case isMounted && m.image == "":
		problems = append(problems, refused(at, "what is mounted at %s is no image", excerpt(m.at)))
	case isMounted && path != "" && m.path != "" && path != m.path:
		problems = append(problems, invalid(at.Child("path"), given, "the mount's subPath says %q", excerpt(m.path)))
	case isMounted:
		return Disk{Source: SourceVolume, Image: m.image, Path: cmp.Or(path, m.path)}, problems
	case own == nil:
		return Disk{Source: SourceImage, Path: path}, problems
	case v.mounts != nil:
		problems = append(problems, refused(at, "the container's own image is that of volume %q; mount this one's, "+
			"as an image volume, at a path that ends in /%s", own.name, excerpt(name)))
	}
	return Disk{Source: SourceVolume, Path: path}, problems
}

// emptyDisk reads a disk of a size, which it rounds down to a MiB, as KubeVirt does; a disk has at least one.
func (*volumes) emptyDisk(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	capacity := g.EmptyDisk.Capacity
	if capacity.IsZero() {
		return Disk{Source: SourceEmpty}, field.ErrorList{field.Required(at.Child("capacity"), "")}
	}
	return Disk{Source: SourceEmpty, Size: max(capacity.Value()/mebibyte, 1) * mebibyte}, nil
}

// wholeMebibytes returns a size in bytes, rounded up to a MiB.
func wholeMebibytes(size resource.Quantity) int64 {
	return (size.Value() + mebibyte - 1) / mebibyte * mebibyte
}

// pvcDisk reads a PVC.
func (v *volumes) pvcDisk(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	d := Disk{Source: SourcePVC, ReadOnly: g.PersistentVolumeClaim.ReadOnly}
	if g.PersistentVolumeClaim.ClaimName == "" {
		return d, field.ErrorList{field.Required(at.Child("claimName"), "the name of a PVC")}
	}
	if n, ok := v.network[g.Name]; ok {
		return v.networkDisk(at, d, n)
	}
	m, problems := v.volume(at, g.Name, "PVC")
	d.Host, d.Block, d.ReadOnly = m.host, m.block, d.ReadOnly || m.readOnly
	return d, problems
}

// networkDisk reads a PVC that QEMU opens over the network. The container mounts its
// Secret alone.
func (v *volumes) networkDisk(at *field.Path, d Disk, n NetworkDisk) (Disk, field.ErrorList) {
	d.Source, d.Network, d.ReadOnly = n.Source(), &n, d.ReadOnly || n.ReadOnly
	if n.SecretName == "" || v.mounts == nil {
		return d, nil
	}
	m, isMounted := v.mounts.find(n.SecretMount)
	if !isMounted || m.files == "" {
		return d, field.ErrorList{refused(at, "Secret %s is not mounted; mount it at a path that ends in /%s", n.SecretName, n.SecretMount)}
	}
	d.Secret = MountedSecret{Name: n.SecretName, Folder: m.files}
	return d, nil
}

// ephemeralDisk reads a disk that begins as a PVC and leaves the PVC as it is.
func (v *volumes) ephemeralDisk(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	d, at := Disk{Source: SourceEphemeral}, at.Child("persistentVolumeClaim")
	if c := g.Ephemeral.PersistentVolumeClaim; c == nil || c.ClaimName == "" {
		return d, field.ErrorList{field.Required(at.Child("claimName"), "the name of a PVC")}
	}
	m, problems := v.volume(at, g.Name, "PVC")
	d.Host, d.Block = m.host, m.block
	return d, problems
}

// volume returns the volume that the container mounts, or has as a device, at a path
// that ends in a name; an empty one if the container is not known yet. What is the
// word for such volumes.
func (v *volumes) volume(at *field.Path, name, what string) (mounted, field.ErrorList) {
	if v.mounts == nil {
		return mounted{}, nil
	}
	m, isMounted := v.mounts.find(name)
	switch {
	case !isMounted:
		return m, field.ErrorList{refused(at, "the container has no such volume; mount the %s, or name it as a device, at a path that ends in /%s",
			what, excerpt(name))}
	case m.host == "":
		return m, field.ErrorList{refused(at, "what is mounted at %s is no %s", excerpt(m.at), what)}
	}
	return m, nil
}

// dataVolumeDisk reads a DataVolume. A manifest has it; in the pod it is a PVC.
func (*volumes) dataVolumeDisk(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	if g.DataVolume.Name == "" {
		return Disk{Source: SourcePVC}, field.ErrorList{field.Required(at.Child("name"), "the name of a DataVolume or a PVC")}
	}
	return Disk{Source: SourcePVC}, nil
}

// belowDisk turns KubeVirt's path in the image into one relative to its folder /disk, if it is there.
func belowDisk(path string) string { return strings.TrimPrefix(path, "/disk/") }
