package compat

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// Encode returns the shape of a running domain's XML, as [Decode] reads it.
func Encode(text string) ([]byte, error) {
	s, err := shapeOf(text)
	if err != nil {
		return nil, fmt.Errorf("read the source's domain: %w", err)
	}
	return json.Marshal(s)
}

func shapeOf(text string) (Shape, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return Shape{}, err
	}
	if d.OS == nil || d.OS.Type == nil || d.CPU == nil || d.Devices == nil {
		return Shape{}, fmt.Errorf("%w: no machine, CPU or devices", ErrShape)
	}
	cells, err := cellsOf(d.CPU)
	if err != nil {
		return Shape{}, err
	}
	size, err := sizeOf(d)
	if err != nil {
		return Shape{}, err
	}
	s := Shape{Machine: d.OS.Type.Machine, CPU: cpuOf(d.CPU), NUMA: cells, Size: size, Addresses: map[string]Address{}}
	if d.GenID != nil {
		s.Generation = d.GenID.Value
	}
	for _, c := range d.Devices.Controllers {
		one := Controller{Type: c.Type, Model: c.Model, Index: value(c.Index), Address: addressOf(c.Address)}
		if c.PCI != nil && c.PCI.Target != nil {
			one.Chassis, one.Port = value(c.PCI.Target.Chassis), c.PCI.Target.Port
		}
		s.Controllers = append(s.Controllers, one)
	}
	for key, at := range addresses(d.Devices) {
		if a := addressOf(*at); a != nil {
			s.Addresses[key] = *a
		}
	}
	return s, s.check()
}

func cpuOf(c *libvirtxml.DomainCPU) CPU {
	cpu := CPU{Mode: c.Mode, Match: c.Match, Check: c.Check, Migratable: c.Migratable, Vendor: c.Vendor}
	if c.Model != nil {
		cpu.Model, cpu.Fallback = c.Model.Value, c.Model.Fallback
	}
	for _, f := range c.Features {
		cpu.Features = append(cpu.Features, Feature{Policy: f.Policy, Name: f.Name})
	}
	return cpu
}

// Apply returns the target's domain with a source's shape. It keeps all else. A device
// that only one of them has is an error.
func Apply(text string, s Shape) (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read the target's domain: %w", err)
	}
	if d.OS == nil || d.OS.Type == nil || d.CPU == nil || d.Devices == nil {
		return "", fmt.Errorf("%w: the target's has no machine, CPU or devices", ErrShape)
	}
	if !sameBoard(d.OS.Type.Machine, s.Machine) {
		return "", fmt.Errorf("%w: machine %q for a VM with %q", ErrShape, s.Machine, d.OS.Type.Machine)
	}
	if err := applySize(&d, s.Size); err != nil {
		return "", err
	}
	if err := sameCells(d.CPU, s); err != nil {
		return "", err
	}
	if err := applyGeneration(&d, s.Generation); err != nil {
		return "", err
	}
	d.OS.Type.Machine = s.Machine
	applyCPU(d.CPU, s.CPU)
	applyControllers(d.Devices, s.Controllers)
	own := addresses(d.Devices)
	for key, a := range s.Addresses {
		at, ok := own[key]
		if !ok {
			return "", fmt.Errorf("%w: it has device %s, the target's has not", ErrShape, key)
		}
		*at = a.domain()
	}
	return d.Marshal()
}

// sameBoard reports whether a machine is a version of the target's own, which can be an
// alias without a version.
func sameBoard(own, machine string) bool {
	switch own {
	case "q35":
		return strings.HasPrefix(machine, "pc-q35-")
	case "pc":
		return strings.HasPrefix(machine, "pc-i440fx-")
	default:
		return machine == own
	}
}

// applyGeneration gives the target the guest's VM generation ID. A guest from an older version has none.
func applyGeneration(d *libvirtxml.Domain, id string) error {
	switch {
	case id == "":
		d.GenID = nil
	case d.GenID == nil:
		return fmt.Errorf("%w: it has a VM generation ID, the target's has not", ErrShape)
	default:
		d.GenID.Value = id
	}
	return nil
}

func applyCPU(to *libvirtxml.DomainCPU, c CPU) {
	to.Mode, to.Match, to.Check, to.Migratable, to.Vendor = c.Mode, c.Match, c.Check, c.Migratable, c.Vendor
	to.Model, to.Features = nil, nil
	if c.Model != "" {
		to.Model = &libvirtxml.DomainCPUModel{Value: c.Model, Fallback: c.Fallback}
	}
	for _, f := range c.Features {
		to.Features = append(to.Features, libvirtxml.DomainCPUFeature{Policy: f.Policy, Name: f.Name})
	}
}

// applyControllers gives the target the source's controllers. The target's own keep
// what a shape does not have, such as a driver's threads.
func applyControllers(to *libvirtxml.DomainDeviceList, list []Controller) {
	var all []libvirtxml.DomainController
	for _, c := range list {
		one := libvirtxml.DomainController{Type: c.Type}
		for _, own := range to.Controllers {
			if own.Type == c.Type && value(own.Index) == c.Index {
				one = own
			}
		}
		one.Index, one.Model, one.Address = new(c.Index), c.Model, c.Address.domain()
		if c.Type == "pci" && (c.Chassis != 0 || c.Port != nil) {
			target := &libvirtxml.DomainControllerPCITarget{Port: c.Port}
			if c.Chassis != 0 {
				target.Chassis = new(c.Chassis)
			}
			one.PCI = &libvirtxml.DomainControllerPCI{Target: target}
		}
		all = append(all, one)
	}
	to.Controllers = all
}

// addresses returns the addresses of the devices that can be on a PCI bus. The key of a
// disk is its name in the guest, that of a network card its MAC, and that of another
// device its position.
func addresses(d *libvirtxml.DomainDeviceList) map[string]**libvirtxml.DomainAddress {
	all := map[string]**libvirtxml.DomainAddress{}
	for i := range d.Disks {
		if t := d.Disks[i].Target; t != nil {
			all["disk/"+t.Dev] = &d.Disks[i].Address
		}
	}
	for i := range d.Interfaces {
		if m := d.Interfaces[i].MAC; m != nil {
			all["interface/"+strings.ToLower(m.Address)] = &d.Interfaces[i].Address
		}
	}
	position := func(kind string, i int) string { return kind + "/" + strconv.Itoa(i) }
	for i := range d.Inputs {
		all[position("input", i)] = &d.Inputs[i].Address
	}
	for i := range d.Sounds {
		all[position("sound", i)] = &d.Sounds[i].Address
	}
	for i := range d.Videos {
		all[position("video", i)] = &d.Videos[i].Address
	}
	for i := range d.Watchdogs {
		all[position("watchdog", i)] = &d.Watchdogs[i].Address
	}
	for i := range d.RNGs {
		all[position("rng", i)] = &d.RNGs[i].Address
	}
	if d.MemBalloon != nil {
		all["memballoon/0"] = &d.MemBalloon.Address
	}
	return all
}
