package compat

import (
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"libvirt.org/go/libvirtxml"
)

// Outline returns what the guest has of a domain of this project's own description: each of its
// parts as XML, without what belongs to the node, such as files, sockets and users. Two domains
// with the same outline differ in nothing but their [Shape].
func Outline(text string) (map[string]string, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("read the domain: %w", err)
	}
	if d.Devices == nil || d.OS == nil || d.OS.Type == nil {
		return nil, fmt.Errorf("%w: no machine or devices", ErrShape)
	}
	o := outline{}
	o.add("machine", d.OS.Type)
	o.add("memory", d.Memory)
	o.add("maxMemory", d.MaximumMemory)
	o.add("vcpu", vcpusOf(d.VCPU))
	o.add("cpu", d.CPU)
	o.add("features", featuresOf(d.Features))
	o.add("clock", d.Clock)
	if d.OS.Loader != nil {
		o["firmware"] = "secure: " + d.OS.Loader.Secure
	}
	o.devices(*d.Devices)
	return o, nil
}

// outline has the parts of a domain, by their names.
type outline map[string]string

// add adds a part as XML.
func (o outline) add(name string, part any) {
	text, err := xml.Marshal(part)
	if err != nil {
		text = []byte(err.Error()) // never equal to a part
	}
	if len(text) > 0 {
		o[name] = string(text)
	}
}

// vcpusOf returns the vCPUs without the node's processors.
func vcpusOf(v *libvirtxml.DomainVCPU) *libvirtxml.DomainVCPU {
	if v == nil {
		return nil
	}
	return &libvirtxml.DomainVCPU{Current: v.Current, Value: v.Value}
}

// featuresOf returns the features without those of the emulator, whose cache depends on the memory.
func featuresOf(f *libvirtxml.DomainFeatureList) *libvirtxml.DomainFeatureList {
	if f == nil {
		return nil
	}
	all := *f
	all.TCG = nil
	return &all
}

// devices adds the devices. A disk's name is that in the guest, a network card's is its MAC, and
// those of others are their positions.
func (o outline) devices(d libvirtxml.DomainDeviceList) {
	for i, one := range d.Disks {
		one.Source, one.BackingStore, one.Mirror = nil, nil, nil
		name := strconv.Itoa(i)
		if one.Target != nil {
			name = one.Target.Dev
		}
		o.add("disk/"+name, &one)
	}
	for i, one := range d.Interfaces {
		one.Source, one.Target = nil, nil
		name := strconv.Itoa(i)
		if one.MAC != nil {
			name = one.MAC.Address
		}
		o.add("interface/"+name, &one)
	}
	for i, one := range d.Serials {
		one.Source, one.Log = nil, nil
		o.at("serial", i, &one)
	}
	for i, one := range d.Channels {
		one.Source = nil
		o.at("channel", i, &one)
	}
	for i, one := range d.Consoles {
		one.Source, one.Log = nil, nil
		o.at("console", i, &one)
	}
	for i, one := range d.RedirDevs {
		one.Source = nil
		o.at("redirdev", i, &one)
	}
	for i, one := range d.TPMs {
		one.Backend = nil
		o.at("tpm", i, &one)
	}
	for i, one := range d.RNGs {
		one.Backend = nil
		o.at("rng", i, &one)
	}
	each(o, "controller", d.Controllers)
	each(o, "input", d.Inputs)
	each(o, "video", d.Videos)
	each(o, "watchdog", d.Watchdogs)
	each(o, "sound", d.Sounds)
	each(o, "panic", d.Panics)
	each(o, "hostdev", d.Hostdevs)
	each(o, "filesystem", d.Filesystems)
	o.add("memballoon", d.MemBalloon)
	o.add("vsock", d.VSock)
}

func (o outline) at(kind string, i int, part any) { o.add(kind+"/"+strconv.Itoa(i), part) }

func each[T any](o outline, kind string, all []T) {
	for i, one := range all {
		o.at(kind, i, &one)
	}
}

// maxQuoted bounds the text of a part in an error, in bytes.
const maxQuoted = 300

// SameOutline returns an error that names the first part in which an own domain differs from
// another one.
func SameOutline(own, other map[string]string) error {
	names := maps.Clone(own)
	maps.Copy(names, other)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if own[name] != other[name] {
			return fmt.Errorf("%w: %.80s is %s here, and was %s", ErrShape, name, part(own[name]), part(other[name]))
		}
	}
	return nil
}

func part(text string) string {
	if text == "" {
		return "missing"
	}
	return fmt.Sprintf("%.*q", maxQuoted, text)
}
