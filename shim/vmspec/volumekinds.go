package vmspec

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// Need is what a pod must give the VM's container for a volume.
type Need string

// The needs of volumes. The node finds a mount or a device by the last part of
// its path in the container, which is the volume's name.
const (
	// NeedNothing says that the node makes the disk itself.
	NeedNothing Need = ""
	// NeedImage is the container's own image.
	NeedImage Need = "image"
	// NeedImageVolume is a mounted image.
	NeedImageVolume Need = "image volume"
	// NeedSecrets are mounted Secrets, if the volume names any.
	NeedSecrets Need = "secrets"
	// NeedFiles is a mount whose files the kubelet has written, such as a ConfigMap.
	NeedFiles Need = "files"
	// NeedVolume is a mount of a folder with a disk, or a block device.
	NeedVolume Need = "volume"
)

// FieldDataVolume is the field of volumes that name a DataVolume of CDI.
const FieldDataVolume = "dataVolume"

// takesVolume reports whether a container may mount a folder, or have a device,
// for such a disk.
func (n Need) takesVolume() bool {
	return n != NeedNothing && n != NeedSecrets && n != NeedFiles
}

// Transfer is what a live migration does with a disk.
type Transfer string

const (
	// TransferNone says that a VM with such a disk stays on its node.
	TransferNone Transfer = ""
	// TransferCopied says that QEMU copies what the guest has written. Both nodes have what
	// is below it.
	TransferCopied Transfer = "copied"
	// TransferShared says that both nodes use the same storage. QEMU passes its locks on.
	TransferShared Transfer = "shared"
	// TransferRemade says that the target makes the disk, which the guest can't write, from
	// what its own pod has.
	TransferRemade Transfer = "remade"
)

// VolumeKind is what all disks of one source have in common. What a node does
// with them is the table of package disk.
type VolumeKind struct {
	Source Source
	// Field is KubeVirt's name of the kind in an element of volumes[]; empty for a
	// kind that only a pod's own mounts, devices or annotations ask for.
	Field string
	// Needs is what the pod must have.
	Needs Need
	// Registry says that the disk is one in an image, and has a [Mode].
	Registry bool
	// Fixed says that a guest can't write the disk, nor boot from it.
	Fixed bool
	// Shows says that a guest can mount the volume's files, in place of a disk, and
	// FilesOnly that no disk can have them. The guest does not see a volume with FilesOnly
	// alone.
	Shows, FilesOnly bool
	// Transfer is what a live migration does with the disk; see [Disk.Transfer].
	Transfer Transfer

	// given reports whether a volume has Field; read returns what it says of its disk.
	given func(kubevirt.Volume) bool
	read  func(v *volumes, at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList)
	// pod returns what Needs is for one volume, and removes from the volume what only
	// the pod needs; nil for kinds without needs.
	pod func(*kubevirt.Volume) PodVolume
	// rows are the supported fields below Field, podRows those that no node reads.
	rows, podRows []fields.Row
}

// VolumeKinds returns the table of volume kinds. Kinds with the same field are
// read by the same function, which chooses the source. All callers share the slice: do not
// change it.
func VolumeKinds() []VolumeKind { return kindTables().all }

// kindTables makes the tables of volume kinds at the first call.
var kindTables = sync.OnceValue(newVolumeTables)

// volumeTables are the volume kinds in the orders that readers want.
type volumeTables struct {
	all []VolumeKind
	// fields are the kinds that a VMI's volume can have, one for each field, and sorted those
	// by their fields, whose names are names.
	fields, sorted []VolumeKind
	names          []string
}

func newVolumeTables() volumeTables {
	t := volumeTables{all: volumeKinds()}
	for _, k := range t.all {
		if k.Field != "" && !slices.ContainsFunc(t.fields, func(o VolumeKind) bool { return o.Field == k.Field }) {
			t.fields = append(t.fields, k)
		}
	}
	t.sorted = slices.SortedFunc(slices.Values(t.fields), func(a, b VolumeKind) int { return strings.Compare(a.Field, b.Field) })
	for _, k := range t.sorted {
		t.names = append(t.names, k.Field)
	}
	return t
}

func volumeKinds() []VolumeKind {
	containerDisk := VolumeKind{
		Field: "containerDisk", Registry: true, Transfer: TransferCopied,
		given: func(g kubevirt.Volume) bool { return g.ContainerDisk != nil },
		read:  (*volumes).registryDisk,
		pod:   imageVolume,
		rows: []fields.Row{
			fields.At("image", fields.Text(1024)),
			fields.At("path", imagePath),
			fields.At("imagePullPolicy", fields.OneOf("Always", "IfNotPresent", "Never")),
		},
		podRows: []fields.Row{fields.At("imagePullSecret", fields.Subdomain)},
	}
	own, mounted := containerDisk, containerDisk
	own.Source, own.Needs = SourceImage, NeedImage
	mounted.Source, mounted.Needs = SourceVolume, NeedImageVolume
	return append([]VolumeKind{
		own,
		mounted,
		{
			Source: SourceEmpty, Field: "emptyDisk", Transfer: TransferCopied,
			given: func(g kubevirt.Volume) bool { return g.EmptyDisk != nil },
			read:  (*volumes).emptyDisk,
			rows:  []fields.Row{fields.At("capacity", fields.Quantity)},
		},
		cloudInitKind(SourceSeed, "cloudInitNoCloud", func(g kubevirt.Volume) bool { return g.CloudInitNoCloud != nil }),
		cloudInitKind(SourceConfigDrive, "cloudInitConfigDrive", func(g kubevirt.Volume) bool { return g.CloudInitConfigDrive != nil }),
		{
			Source: SourcePVC, Field: "persistentVolumeClaim", Needs: NeedVolume, Shows: true, Transfer: TransferShared,
			given: func(g kubevirt.Volume) bool { return g.PersistentVolumeClaim != nil },
			read:  (*volumes).pvcDisk,
			pod:   pvcVolume,
			rows: []fields.Row{
				fields.At("claimName", fields.Subdomain),
				fields.At("readOnly", fields.Boolean),
			},
			podRows: []fields.Row{fields.At("hotpluggable", fields.Boolean)},
		},
		{
			// The PVC has the name of the DataVolume, and a node reads only that.
			Source: SourcePVC, Field: FieldDataVolume, Needs: NeedVolume, Shows: true, Transfer: TransferShared,
			given: func(g kubevirt.Volume) bool { return g.DataVolume != nil },
			read:  (*volumes).dataVolumeDisk,
			pod:   dataVolumePVC,
			podRows: []fields.Row{
				fields.At("name", fields.Subdomain),
				fields.At("hotpluggable", fields.Boolean),
			},
		},
		{
			Source: SourceEphemeral, Field: "ephemeral", Needs: NeedVolume, Transfer: TransferCopied,
			given: func(g kubevirt.Volume) bool { return g.Ephemeral != nil },
			read:  (*volumes).ephemeralDisk,
			pod:   ephemeralVolume,
			rows: []fields.Row{
				fields.At("persistentVolumeClaim.claimName", fields.Subdomain),
				fields.At("persistentVolumeClaim.readOnly", fields.Boolean),
			},
		},
		{
			Source: SourceHostDisk, Field: "hostDisk", Needs: NeedVolume, Transfer: TransferShared,
			given: func(g kubevirt.Volume) bool { return g.HostDisk != nil },
			read:  (*volumes).hostDisk,
			pod:   hostFolder,
			rows: []fields.Row{
				fields.At("path", filePath),
				fields.At("type", fields.OneOf(kubevirt.HostDiskExists, kubevirt.HostDiskExistsOrCreate)),
				fields.At("capacity", quantityOrZero),
				fields.At("shared", fields.Boolean),
			},
		},
		{Source: SourceDrive, Transfer: TransferRemade},
		{Source: SourceImport},
		{Source: SourceISCSI, Transfer: TransferShared},
		{Source: SourceRBD, Transfer: TransferShared},
	}, fileKinds()...)
}

// cloudInitKind is one of cloud-init's data sources, which have the same fields.
func cloudInitKind(source Source, name string, given func(kubevirt.Volume) bool) VolumeKind {
	return VolumeKind{
		Source: source, Field: name, Needs: NeedSecrets, Fixed: true, Transfer: TransferRemade,
		given: given,
		read: func(v *volumes, at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
			return v.cloudInitDisk(at, g, source)
		},
		pod: seedSecrets,
		rows: []fields.Row{
			fields.At("userData", secretText),
			fields.At("userDataBase64", secretText),
			fields.At("secretRef.name", fields.Subdomain),
			fields.At("networkData", secretText),
			fields.At("networkDataBase64", secretText),
			fields.At("networkDataSecretRef.name", fields.Subdomain),
		},
	}
}

// hidden reports whether the guest sees nothing of the volume.
func (k VolumeKind) hidden() bool { return k.FilesOnly && !k.Shows }

// Kind returns the kind of the source.
func (s Source) Kind() VolumeKind {
	all := VolumeKinds()
	i := slices.IndexFunc(all, func(k VolumeKind) bool { return k.Source == s })
	if i < 0 {
		return VolumeKind{Source: s}
	}
	return all[i]
}

// volumeFields returns the fields that a volume of a VMI can have, sorted, and the
// kinds of those that one has.
func volumeFields(g kubevirt.Volume) (known []string, given []*VolumeKind) {
	t := kindTables()
	for i := range t.sorted {
		if t.sorted[i].given(g) {
			given = append(given, &t.sorted[i])
		}
	}
	return t.names, given
}

// volumeRows returns the supported fields of volumes[] that rows selects from a kind.
func volumeRows(rows func(VolumeKind) []fields.Row) []fields.Row {
	var all []fields.Row
	for _, k := range kindTables().fields {
		for _, r := range rows(k) {
			path := strings.TrimSuffix("volumes[]."+k.Field+"."+r.Path, ".")
			all = append(all, fields.Row{Path: path, Takes: r.Takes})
		}
	}
	return all
}
