package vmspec

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// hostDisk reads a file in a folder of the node, which the container mounts. The pod
// has a hostPath volume for it, so that Pod Security decides who may have one.
func (v *volumes) hostDisk(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	h := g.HostDisk
	d := Disk{Source: SourceHostDisk, File: path.Base(h.Path), Shared: h.Shared != nil && *h.Shared}
	problems := required(at.Child("path"), h.Path)
	creates := h.Type == kubevirt.HostDiskExistsOrCreate
	switch {
	case h.Type == "":
		problems = append(problems, field.Required(at.Child("type"), "Disk or DiskOrCreate"))
	case creates && h.Capacity.IsZero():
		problems = append(problems, field.Required(at.Child("capacity"), "the size of the file to create"))
	case !creates && !h.Capacity.IsZero():
		problems = append(problems, refused(at.Child("capacity"), "goes with type DiskOrCreate"))
	case creates:
		d.Size = wholeMebibytes(h.Capacity)
	}
	m, p := v.volume(at, g.Name, "folder")
	if m.block {
		p = append(p, refused(at, "%s is a device; mount a folder there", excerpt(m.at)))
	}
	d.Host, d.ReadOnly = m.host, m.readOnly
	return d, append(problems, p...)
}

// hostFolder is the folder of a host disk, which the kubelet makes if it is missing, as
// with KubeVirt.
func hostFolder(g *kubevirt.Volume) PodVolume {
	kind := corev1.HostPathDirectoryOrCreate
	return PodVolume{Source: &corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: path.Dir(g.HostDisk.Path), Type: &kind,
	}}}
}

// filePath takes the absolute path of a file.
var filePath = fields.String(func(at *field.Path, s string) *field.Error {
	if s == "/" {
		return invalid(at, s, "must be the path of a file")
	}
	return imagePath(at, s)
})

// quantityOrZero takes a quantity that may be left out: the API's own encoder writes 0
// then.
func quantityOrZero(at *field.Path, value any) *field.Error {
	if value == "0" {
		return nil
	}
	return fields.Quantity(at, value)
}
