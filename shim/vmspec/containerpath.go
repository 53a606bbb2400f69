package vmspec

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// containerPath reads a folder that the container mounts though no volume of the VMI
// asks for it, such as a token that a webhook adds to pods. The path is that of the
// mount: a folder below it could be a link out of the volume.
func (v *volumes) containerPath(at *field.Path, g kubevirt.Volume) (Disk, field.ErrorList) {
	d, at := Disk{Source: SourceContainerPath, File: g.ContainerPath.Path}, at.Child("path")
	if d.File == "" {
		return d, field.ErrorList{field.Required(at, "the path of a mount")}
	}
	if v.mounts == nil {
		return d, nil
	}
	i := slices.IndexFunc(*v.mounts, func(m mounted) bool { return m.at == d.File })
	if i < 0 {
		return d, field.ErrorList{invalid(at, d.File, "the container mounts nothing there; name a mount's own path")}
	}
	m := (*v.mounts)[i]
	if m.block || m.image != "" {
		return d, field.ErrorList{invalid(at, d.File, "what the container has there is no folder of the node")}
	}
	d.Host = m.files + m.host // one of them is empty
	return d, nil
}

// ofContainerPath returns the volume that shows a mount; nil for other mounts.
func (v *volumes) ofContainerPath(m mounted) *volume {
	i := slices.IndexFunc(v.all, func(o volume) bool { return o.Source == SourceContainerPath && o.File == m.at })
	if i < 0 {
		return nil
	}
	return &v.all[i]
}
