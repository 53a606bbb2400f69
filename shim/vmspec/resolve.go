package vmspec

import (
	"cmp"
	"reflect"
	"slices"
)

// Unresolved is a VM as its pod asks for it. [Unresolved.Resolve] makes the spec
// from it and from what the node found out. It is a value, and never written.
type Unresolved struct {
	spec Spec
	// plain says that the pod describes no VM, so that the content of the disks
	// decides how they are attached.
	plain bool
}

// Facts are what a node knows about a VM beyond what its pod asks for.
type Facts struct {
	// Mode is the node's default, for registry disks whose pod asks for none.
	Mode Mode
	// Disks are facts about disks, by their names. A disk may be missing.
	Disks map[string]DiskFacts
}

// DiskFacts are what a node knows about one disk.
type DiskFacts struct {
	// CD says that the content is that of a CD.
	CD bool
	// Mode and Target are those that an earlier resolution gave to the disk, and that
	// the disk keeps; empty before the first one.
	Mode   Mode
	Target string
	// BlockSize is that of the disk's volume; empty if the disk does not ask for it.
	BlockSize BlockSize
}

// Resolve returns the spec of the VM. The same request and the same facts always
// give the same spec.
func (u Unresolved) Resolve(f Facts) Spec {
	s := u.spec
	s.Disks = slices.Clone(s.Disks)
	for i := range s.Disks {
		d := &s.Disks[i]
		known := f.Disks[d.Name]
		d.Target = known.Target
		if d.BlockSize.MatchVolume {
			d.BlockSize.Logical, d.BlockSize.Physical = known.BlockSize.Logical, known.BlockSize.Physical
		}
		if !d.Registry() {
			continue
		}
		d.Mode = cmp.Or(d.Mode, known.Mode, f.Mode)
		if u.plain && known.CD {
			d.CDROM, d.ReadOnly, d.Bus = true, true, driveBus(s.Arch())
		}
	}
	for i, target := range Targets(s.Disks) {
		s.Disks[i].Target = target
	}
	return s
}

// Facts returns the facts that the spec was resolved with, as far as they are in
// it. Another request for the same VM, as with other resources, resolves with them
// to the same disks.
func (s Spec) Facts() Facts {
	f := Facts{Disks: map[string]DiskFacts{}}
	for _, d := range s.Disks {
		f.Disks[d.Name] = DiskFacts{CD: d.CDROM, Mode: d.Mode, Target: d.Target, BlockSize: d.BlockSize}
	}
	return f
}

// Equal reports whether both ask for the same VM.
func (u Unresolved) Equal(o Unresolved) bool { return reflect.DeepEqual(u, o) }

// Disks returns the disks that the VM asks for, in the order of its spec.
func (u Unresolved) Disks() []Disk { return slices.Clone(u.spec.Disks) }

// ImageDisk returns the path, under /disk in the container's image, of the disk
// that the VM is made of, empty for the only one. Needed is false for a VM that
// uses no disk of that image.
func (u Unresolved) ImageDisk() (path string, needed bool) {
	for _, d := range u.spec.Disks {
		if d.Begins() == SourceImage {
			return d.Path, true
		}
	}
	return "", false
}

// ImageFiles reports whether the VM uses other files of the container's image, such
// as a kernel.
func (u Unresolved) ImageFiles() bool {
	return u.spec.Firmware.Kernel != nil && u.spec.Firmware.Kernel.Image == ""
}

// KernelImage returns the image of the VM's kernel, by its id; empty without a kernel, and for one in the container's
// image.
func (u Unresolved) KernelImage() string {
	if u.spec.Firmware.Kernel == nil {
		return ""
	}
	return u.spec.Firmware.Kernel.Image
}
