package vmspec

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

const (
	// maxTag is the room of virtio-fs for the name by which a guest mounts a file system.
	maxTag = 36
	// MaxFilesystems is how many file systems a VM can have.
	MaxFilesystems = 16
)

// Filesystem is a folder of the node that the guest mounts by its name.
type Filesystem struct {
	// Name is unique in the VM, among disks too.
	Name string `json:"name"`
	// Host is the path of the folder on the node.
	Host     string `json:"host,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// filesystems reads the file systems of a VMI, and marks their volumes. As with KubeVirt every one
// shows the volume of its name.
func (v *volumes) filesystems(at *field.Path, given []kubevirt.Filesystem) ([]Filesystem, field.ErrorList) {
	var all []Filesystem
	var problems field.ErrorList
	for i, f := range given {
		at := at.Index(i)
		if f.Virtiofs == nil {
			problems = append(problems, field.Required(at.Child("virtiofs"), "the only type"))
		}
		volume := v.find(f.Name)
		switch at := at.Child("name"); {
		case f.Name == "":
			problems = append(problems, field.Required(at, ""))
		case len(f.Name) > maxTag:
			problems = append(problems, invalid(at, f.Name, "a guest mounts it by its name, which has at most %d characters", maxTag))
		case volume == nil:
			problems = append(problems, invalid(at, f.Name, "no volume has this name"))
		case volume.filesystem:
			problems = append(problems, field.Duplicate(at, f.Name))
		case volume.Source != "" && !volume.shows():
			problems = append(problems, invalid(at, f.Name, "its volume holds no files for the guest; use %s", strings.Join(shown(), ", ")))
		case volume.Block || volume.Network != nil:
			problems = append(problems, invalid(at, f.Name, "its PVC is a block device or a network disk, and needs a file system; use disk"))
		default:
			volume.filesystem = true
			all = append(all, Filesystem{Name: f.Name, Host: volume.Host, ReadOnly: volume.ReadOnly || volume.Source.Kind().Fixed})
		}
	}
	return all, problems
}

// shows reports whether a guest can mount the files of the volume.
func (v *volume) shows() bool { return v.Source.Kind().Shows }

// shown returns the fields of volumes whose files a guest can mount, sorted.
func shown() []string {
	var names []string
	for _, k := range kindTables().fields {
		if k.Shows {
			names = append(names, k.Field)
		}
	}
	slices.Sort(names)
	return names
}
