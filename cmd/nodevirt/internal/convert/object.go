package convert

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// kinds are the present names of kinds without a template.
var kinds = map[string]string{
	"VM":                       "VirtualMachineInstance",
	"VirtualMachine":           "VirtualMachineInstance",
	"VirtualMachineReplicaSet": "VirtualMachineInstanceReplicaSet",
	"OfflineVirtualMachine":    "VirtualMachine",
}

// units are the suffixes of quantities for libvirt's units.
var units = map[string]string{
	"": "Ki", "b": "", "bytes": "", "KB": "k", "k": "Ki", "KiB": "Ki", "MB": "M", "M": "Mi", "MiB": "Mi",
	"GB": "G", "G": "Gi", "GiB": "Gi", "TB": "T", "T": "Ti", "TiB": "Ti",
}

// specOf returns the spec of an object's instance and its path; nil if the instance has
// no disk of the old form.
func specOf(object map[string]any) (spec map[string]any, at string) {
	for _, path := range [][]string{{"spec"}, {"spec", "template", "spec"}} {
		spec, at = object, ""
		for _, key := range path {
			spec, _ = spec[key].(map[string]any)
			at += key + "."
		}
		domain, _ := spec["domain"].(map[string]any)
		devices, _ := domain["devices"].(map[string]any)
		disks, _ := devices["disks"].([]any)
		if slices.ContainsFunc(disks, isOld) {
			return spec, at
		}
	}
	return nil, ""
}

func isOld(disk any) bool {
	d, _ := disk.(map[string]any)
	_, typed := d["type"].(string)
	return typed
}

// object rewrites an object, whose instance's spec is at a path.
func (c *conversion) object(object, spec map[string]any, at string) error {
	object["apiVersion"] = "kubevirt.io/v1"
	owner, _ := object["spec"].(map[string]any)
	kind, _ := object["kind"].(string)
	if present := kinds[kind]; present != "" && (kind != "VirtualMachine" || owner["template"] == nil) {
		object["kind"] = present
	}
	if meta, _ := object["metadata"].(map[string]any); meta["name"] == nil && meta["generateName"] == nil {
		c.note("add metadata.name")
	}
	domain := spec["domain"].(map[string]any)
	c.memory(domain, at+"domain.")
	c.drop(domain, at+"domain.", "os", "type")
	devices := domain["devices"].(map[string]any)
	c.drop(devices, at+"domain.devices.", "ballooning", "channels", "consoles", "graphics", "video")
	if cards, _ := devices["interfaces"].([]any); slices.ContainsFunc(cards, isOld) {
		c.drop(devices, at+"domain.devices.", "interfaces")
	}
	return c.disks(spec, devices, at+"domain.devices.disks")
}

// memory rewrites the size of the guest's memory.
func (c *conversion) memory(domain map[string]any, at string) {
	memory, _ := domain["memory"].(map[string]any)
	value, isNumber := memory["value"].(int64)
	unit, _ := memory["unit"].(string)
	suffix, known := units[unit]
	switch {
	case isNumber && known:
		domain["memory"] = map[string]any{"guest": strconv.FormatInt(value, 10) + suffix}
	case memory["guest"] == nil && domain["resources"] == nil:
		c.note("add %smemory.guest", at)
	}
}

// drop removes fields without a present form.
func (c *conversion) drop(from map[string]any, at string, fields ...string) {
	for _, f := range fields {
		if _, ok := from[f]; ok {
			delete(from, f)
			c.note("left out %s%s, which has no present form", at, f)
		}
	}
}

// disks rewrites the disks of the old form, and adds their volumes.
func (c *conversion) disks(spec, devices map[string]any, at string) error {
	disks := devices["disks"].([]any)
	volumes, _ := spec["volumes"].([]any)
	taken := map[string]bool{}
	for _, named := range slices.Concat(disks, volumes) {
		n, _ := named.(map[string]any)
		name, _ := n["name"].(string)
		taken[name] = true
	}
	var errs []error
	for i, given := range disks {
		if !isOld(given) {
			continue
		}
		at := fmt.Sprintf("%s[%d]", at, i)
		disk, source, err := c.disk(given.(map[string]any), at)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%w", at, err))
			continue
		}
		name, _ := disk["name"].(string)
		for n := i; name == "" || taken[name]; n++ {
			name = fmt.Sprintf("disk-%d", n)
		}
		taken[name] = true
		disk["name"], source["name"] = name, name
		disks[i] = disk
		volumes = append(volumes, source)
	}
	spec["volumes"] = volumes
	return errors.Join(errs...)
}
