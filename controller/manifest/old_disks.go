package manifest

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// oldDisks refuses disks in the form that KubeVirt had before its API v1alpha2,
// where a disk names its own source, and describes the present form. It returns the
// spec without the old form.
func oldDisks(at *field.Path, tree any) (any, field.ErrorList) {
	devices, ok := dig(tree, "domain", "devices").(map[string]any)
	if !ok {
		return tree, nil
	}
	disks, ok := devices["disks"].([]any)
	if !ok {
		return tree, nil
	}
	var problems field.ErrorList
	result := slices.Clone(disks)
	for i, d := range disks {
		disk, ok := d.(map[string]any)
		kind, isText := disk["type"].(string)
		if !ok || !isText {
			continue
		}
		at := at.Child("domain", "devices", "disks").Index(i).Child("type")
		source, _ := dig(disk, "source", "name").(string)
		problems = append(problems, fields.Refused(at, "%s", today(kind, source)))
		disk = maps.Clone(disk)
		for _, key := range []string{"type", "device", "source", "target", "driver", "auth", "snapshot"} {
			delete(disk, key)
		}
		result[i] = disk
	}
	return replace(tree, result, "domain", "devices", "disks"), problems
}

// today describes the present form of a disk of an old type.
func today(kind, source string) string {
	value := func(hint string) string {
		if source != "" {
			return fields.Excerpt(source)
		}
		return hint
	}
	const (
		instead = "; give the disk a name, and add a volume of that name with "
		convert = ", or run nodevirt convert -f FILE"
	)
	switch kind {
	case "RegistryDisk:v1alpha", "ContainerRegistryDisk:v1alpha", "ContainerDisk:v1alpha":
		return kind + " is an old form" + instead + "containerDisk.image: " + value("IMAGE") + convert
	case "PersistentVolumeClaim":
		return kind + " is an old form" + instead + "persistentVolumeClaim.claimName: " + value("NAME") + convert
	}
	return "unknown field" + instead + "the disk's source"
}

// dig returns the value at a path below a decoded JSON value; nil if there is none.
func dig(tree any, path ...string) any {
	for _, key := range path {
		m, _ := tree.(map[string]any)
		tree = m[key]
	}
	return tree
}

// replace returns the tree with another value at a path that exists.
func replace(tree, value any, path ...string) any {
	if len(path) == 0 {
		return value
	}
	m := maps.Clone(tree.(map[string]any))
	m[path[0]] = replace(m[path[0]], value, path[1:]...)
	return m
}
