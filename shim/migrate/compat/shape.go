package compat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"
)

// ErrShape is returned for a shape that no source sends, or that is not of the target's
// domain.
var ErrShape = errors.New("the source's domain does not fit")

const (
	// maxEncoded bounds an encoded shape, in bytes; maxDevices and maxFeatures its lists.
	maxEncoded  = 256 << 10
	maxDevices  = 512
	maxFeatures = 1024
)

// Shape is the part of the source's domain that the target must repeat.
type Shape struct {
	// Machine is the board with its version, such as pc-q35-7.2.
	Machine string `json:"machine"`
	CPU     CPU    `json:"cpu"`
	NUMA    []Cell `json:"numa,omitempty"`
	// Generation is the VM generation ID, which a guest that moves keeps; empty for a guest that has none.
	Generation  string       `json:"generation,omitempty"`
	Size        *Size        `json:"size,omitempty"`
	Controllers []Controller `json:"controllers"`
	// Addresses are those of the other devices, by their [key].
	Addresses map[string]Address `json:"addresses"`
}

// CPU is the CPU, without its topology, which the VM's spec has.
type CPU struct {
	Mode       string    `json:"mode"`
	Match      string    `json:"match,omitempty"`
	Check      string    `json:"check,omitempty"`
	Migratable string    `json:"migratable,omitempty"`
	Model      string    `json:"model,omitempty"`
	Fallback   string    `json:"fallback,omitempty"`
	Vendor     string    `json:"vendor,omitempty"`
	Features   []Feature `json:"features,omitempty"`
}

// Feature is a feature of a CPU.
type Feature struct {
	Policy string `json:"policy"`
	Name   string `json:"name"`
}

// Controller is a controller of a bus in the guest.
type Controller struct {
	Type    string   `json:"type"`
	Model   string   `json:"model,omitempty"`
	Index   uint     `json:"index"`
	Chassis uint     `json:"chassis,omitempty"`
	Port    *uint    `json:"port,omitempty"`
	Address *Address `json:"address,omitempty"`
}

// Address is a PCI address in the guest. The domain is 0.
type Address struct {
	Bus           uint   `json:"bus"`
	Slot          uint   `json:"slot"`
	Function      uint   `json:"function"`
	MultiFunction string `json:"multifunction,omitempty"`
}

// Decode decodes and checks a shape.
func Decode(data []byte) (Shape, error) {
	if len(data) > maxEncoded {
		return Shape{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrShape, len(data), maxEncoded)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var s Shape
	if err := d.Decode(&s); err != nil {
		return Shape{}, fmt.Errorf("%w: %w", ErrShape, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Shape{}, fmt.Errorf("%w: data after it", ErrShape)
	}
	return s, s.check()
}

var (
	machinePattern = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._-]{0,63}$`)
	namePattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	keyPattern     = regexp.MustCompile(`^[a-z]{1,16}/[A-Za-z0-9:._-]{1,32}$`)
)

// models returns the controllers that a guest can have, and their models. None is
// connected to anything of the node.
func models() map[string][]string {
	return map[string][]string{
		"pci": {
			"pcie-root", "pcie-root-port", "pcie-to-pci-bridge", "pcie-switch-upstream-port", "pcie-switch-downstream-port",
			"pci-root", "pci-bridge", "dmi-to-pci-bridge",
		},
		"usb":           {"none", "qemu-xhci"},
		"scsi":          {"virtio-scsi"},
		"virtio-serial": {"", "virtio"},
		"sata":          {"", "ich9-ahci"},
		"ide":           {""},
	}
}

func (s Shape) check() error {
	if !machinePattern.MatchString(s.Machine) {
		return fmt.Errorf("%w: machine %q", ErrShape, s.Machine)
	}
	if err := s.CPU.check(); err != nil {
		return err
	}
	if id, err := uuid.Parse(s.Generation); s.Generation != "" && (err != nil || id.String() != s.Generation) {
		return fmt.Errorf("%w: VM generation ID %.80q", ErrShape, s.Generation)
	}
	if err := s.Size.check(); err != nil {
		return err
	}
	if len(s.NUMA) > maxCells {
		return fmt.Errorf("%w: more than %d NUMA nodes", ErrShape, maxCells)
	}
	if len(s.Controllers) > maxDevices || len(s.Addresses) > maxDevices {
		return fmt.Errorf("%w: more than %d devices", ErrShape, maxDevices)
	}
	known, seen := models(), map[string]bool{}
	for _, c := range s.Controllers {
		id := fmt.Sprintf("%s/%d", c.Type, c.Index)
		if list, ok := known[c.Type]; !ok || !slices.Contains(list, c.Model) || c.Index > 255 || seen[id] {
			return fmt.Errorf("%w: controller %.80q, model %.80q", ErrShape, id, c.Model)
		}
		seen[id] = true
		if c.Chassis > 255 || c.Port != nil && *c.Port > 255 || c.Address != nil && !c.Address.valid() {
			return fmt.Errorf("%w: controller %q: %+v", ErrShape, id, c)
		}
	}
	for key, a := range s.Addresses {
		if !keyPattern.MatchString(key) || !a.valid() {
			return fmt.Errorf("%w: address of %.80q: %+v", ErrShape, key, a)
		}
	}
	return nil
}

func (c CPU) check() error {
	for what, v := range map[string]struct {
		value string
		known []string
	}{
		"mode":       {c.Mode, []string{"custom", "maximum", "host-passthrough"}},
		"match":      {c.Match, []string{"", "exact", "minimum", "strict"}},
		"check":      {c.Check, []string{"", "none", "partial", "full"}},
		"migratable": {c.Migratable, []string{"", "on", "off"}},
		"fallback":   {c.Fallback, []string{"", "forbid", "allow"}},
	} {
		if !slices.Contains(v.known, v.value) {
			return fmt.Errorf("%w: CPU %s %.80q", ErrShape, what, v.value)
		}
	}
	for _, name := range []string{c.Model, c.Vendor} {
		if name != "" && !namePattern.MatchString(name) {
			return fmt.Errorf("%w: CPU %.80q", ErrShape, name)
		}
	}
	if len(c.Features) > maxFeatures {
		return fmt.Errorf("%w: %d features of the CPU", ErrShape, len(c.Features))
	}
	for _, f := range c.Features {
		if !namePattern.MatchString(f.Name) || !slices.Contains([]string{"force", "require", "optional", "disable", "forbid"}, f.Policy) {
			return fmt.Errorf("%w: CPU feature %.80q, policy %.80q", ErrShape, f.Name, f.Policy)
		}
	}
	return nil
}

// valid reports whether the numbers are in the ranges of PCI.
func (a Address) valid() bool {
	return a.Bus <= 255 && a.Slot <= 31 && a.Function <= 7 && slices.Contains([]string{"", "on", "off"}, a.MultiFunction)
}

func addressOf(a *libvirtxml.DomainAddress) *Address {
	if a == nil || a.PCI == nil {
		return nil
	}
	return &Address{
		Bus: value(a.PCI.Bus), Slot: value(a.PCI.Slot), Function: value(a.PCI.Function), MultiFunction: a.PCI.MultiFunction,
	}
}

func (a *Address) domain() *libvirtxml.DomainAddress {
	if a == nil {
		return nil
	}
	return &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{
		Domain: new(uint(0)), Bus: new(a.Bus), Slot: new(a.Slot), Function: new(a.Function), MultiFunction: a.MultiFunction,
	}}
}

func value(v *uint) uint {
	if v == nil {
		return 0
	}
	return *v
}
