package vmspec

import (
	"fmt"
	"slices"
	"strings"
)

// Mode says how a registry disk reaches its machine.
type Mode string

// The modes of a registry disk.
const (
	// ModeFile reads the disk where the image was unpacked, below an overlay of the VM's own.
	ModeFile Mode = "file"
	// ModeRaw expands the disk to a raw file of the VM's own.
	ModeRaw Mode = "raw"
	// ModeISCSI has the node serve the disk to its machine over iSCSI.
	ModeISCSI Mode = "iscsi"
)

// Modes returns the modes that there are.
func Modes() []Mode { return []Mode{ModeFile, ModeRaw, ModeISCSI} }

// ParseMode returns the mode that a text names.
func ParseMode(text string) (Mode, error) {
	if m := Mode(text); slices.Contains(Modes(), m) {
		return m, nil
	}
	var names []string
	for _, m := range Modes() {
		names = append(names, string(m))
	}
	return "", fmt.Errorf("%q is no disk mode; there are %s", excerpt(text), strings.Join(names, ", "))
}

// maxModes bounds how many disks the annotation names.
const maxModes = 64

// modes are what AnnotationDiskMode asks for.
type modes struct {
	all  Mode // of disks that are not named; empty is the node's default
	disk map[string]Mode
}

// parseModes reads MODE, NAME=MODE, or several of them with commas between.
func parseModes(text string) (modes, error) {
	m := modes{disk: map[string]Mode{}}
	parts := strings.Split(text, ",")
	if len(parts) > maxModes {
		return m, fmt.Errorf("%s: %d entries; at most %d are allowed", AnnotationDiskMode, len(parts), maxModes)
	}
	var errs []error
	for _, part := range parts {
		name, value, named := strings.Cut(part, "=")
		if !named {
			name, value = "", part
		}
		name = strings.TrimSpace(name)
		mode, err := ParseMode(strings.TrimSpace(value))
		switch {
		case err != nil:
		case named && name == "":
			err = fmt.Errorf("%q names no disk: write DISK=MODE, or MODE alone for all disks", excerpt(part))
		case named && m.disk[name] != "":
			err = fmt.Errorf("disk %q has a mode already", excerpt(name))
		case named:
			m.disk[name] = mode
		case m.all != "":
			err = fmt.Errorf("a second mode for all disks, %s, beside %s", mode, m.all)
		default:
			m.all = mode
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", AnnotationDiskMode, err))
		}
	}
	return m, capped(errs)
}

// apply sets the modes of a machine's registry disks.
func (m modes) apply(disks []Disk) error {
	var registry []string
	for i := range disks {
		if !disks[i].Registry() {
			continue
		}
		registry = append(registry, disks[i].Name)
		disks[i].Mode = m.all
		if mode, ok := m.disk[disks[i].Name]; ok {
			disks[i].Mode = mode
		}
	}
	var errs []error
	for name := range m.disk {
		if !slices.Contains(registry, name) {
			errs = append(errs, fmt.Errorf("%s: %q is no registry disk of this VM, which has %q",
				AnnotationDiskMode, excerpt(name), registry))
		}
	}
	return joinSorted(errs)
}
