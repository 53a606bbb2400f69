package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// disk returns the present form of a disk, and its volume. The disk has the name of its
// target, if that is a name.
func (c *conversion) disk(old map[string]any, at string) (disk, volume map[string]any, err error) {
	old = maps.Clone(old)
	source, target := fieldsOf(old, "source"), fieldsOf(old, "target")
	name := text(source, "name")
	kind := text(old, "type")
	switch kind {
	case "RegistryDisk:v1alpha", "ContainerRegistryDisk:v1alpha", "ContainerDisk:v1alpha":
		volume = map[string]any{"containerDisk": map[string]any{"image": name}}
	case "PersistentVolumeClaim":
		volume = map[string]any{"persistentVolumeClaim": map[string]any{"claimName": name}}
	default:
		return nil, nil, fmt.Errorf(".type: %q has no present form; use an image or a PVC", kind)
	}
	if name == "" {
		return nil, nil, fmt.Errorf(".source.name: missing; name the image or the PVC")
	}
	// The proposals have all three words.
	dev := cmp.Or(text(target, "dev"), text(target, "device"), text(target, "target"))
	bus, err := busOf(text(target, "bus"), dev)
	if err != nil {
		return nil, nil, err
	}
	device, err := deviceOf(text(old, "device"), bus)
	if err != nil {
		return nil, nil, err
	}
	if len(validation.IsDNS1123Label(dev)) == 0 {
		device["name"] = dev
	}
	if serial := text(old, "serial"); serial != "" {
		device["serial"] = serial
	}
	for _, known := range []string{"type", "device", "source", "target", "serial"} {
		delete(old, known)
	}
	c.drop(old, at+".", slices.Sorted(maps.Keys(old))...)
	return device, volume, nil
}

// busOf returns a disk's bus, which libvirt derives from the target's name if the
// manifest does not say it; "" is the API's default.
func busOf(bus, dev string) (string, error) {
	switch bus {
	case "virtio", "scsi", "sata", "usb":
		return bus, nil
	case "ide":
		return "sata", nil
	case "":
	default:
		return "", fmt.Errorf(".target.bus: %q has no present form; use virtio, scsi, sata or usb", bus)
	}
	for prefix, bus := range map[string]string{"vd": "virtio", "sd": "scsi", "hd": "sata"} {
		if strings.HasPrefix(dev, prefix) {
			return bus, nil
		}
	}
	return "", nil
}

// deviceOf returns a disk with what the guest sees.
func deviceOf(device, bus string) (map[string]any, error) {
	shown := map[string]any{}
	if bus != "" {
		shown["bus"] = bus
	}
	switch device {
	case "", "disk":
		return map[string]any{"disk": shown}, nil
	case "cdrom":
		if bus == "virtio" {
			shown["bus"] = "sata"
		}
		return map[string]any{"cdrom": shown}, nil
	case "lun":
		return map[string]any{"lun": map[string]any{"bus": "scsi"}}, nil
	}
	return nil, fmt.Errorf(".device: %q has no present form; use disk, cdrom or lun", device)
}

func fieldsOf(of map[string]any, key string) map[string]any {
	m, _ := of[key].(map[string]any)
	return m
}

func text(of map[string]any, key string) string {
	s, _ := of[key].(string)
	return s
}
