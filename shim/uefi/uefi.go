// Package uefi finds the UEFI firmware that a node has for guests.
//
// It owns the search in the descriptors that packages of firmware install for QEMU
// (QEMU's docs/interop/firmware.json). It opens no firmware, and leaves the copy of
// the variables to package vmfile.
package uefi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// ErrMissing says that the node has no firmware of the wanted kind.
var ErrMissing = errdefs.ErrFailedPrecondition.WithMessage("this node has no such UEFI firmware")

// Firmware is a UEFI firmware in two files of the node.
type Firmware struct {
	// Code is the path of the program, which guests share and can't write. Variables is
	// the path of the template of a guest's variables; empty for firmware that keeps none.
	Code      string `json:"code"`
	Variables string `json:"variables"`
	// SMM says that the program requires system management mode.
	SMM bool `json:"smm,omitempty"`
}

// Sizes returns the sizes of the program and of the variables, in bytes.
func (f Firmware) Sizes() (code, variables int64, err error) {
	var sizes [2]int64
	for i, path := range []string{f.Code, f.Variables} {
		info, err := os.Stat(path)
		if err != nil {
			return 0, 0, fmt.Errorf("read the node's UEFI firmware: %w", err)
		}
		sizes[i] = info.Size()
	}
	return sizes[0], sizes[1], nil
}

// Dirs returns the folders of descriptors, the most important first. A file in one
// replaces the files of its name in those after it.
func Dirs() []string { return []string{"/etc/qemu/firmware", "/usr/share/qemu/firmware"} }

// descriptor is what this package reads of one.
type descriptor struct {
	Interfaces []string `json:"interface-types"`
	Mapping    struct {
		Device     string `json:"device"`
		Mode       string `json:"mode"`
		Filename   string `json:"filename"` // of the device memory
		Executable image  `json:"executable"`
		Template   image  `json:"nvram-template"`
	} `json:"mapping"`
	Targets []struct {
		Architecture string   `json:"architecture"`
		Machines     []string `json:"machines"`
	} `json:"targets"`
	Features []string `json:"features"`
}

type image struct {
	Name   string `json:"filename"`
	Format string `json:"format"`
}

// architectures returns the descriptors' names of guests' architectures by Go's.
func architectures() map[string]string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
}

// Wanted is what a VM requires of its firmware.
type Wanted struct {
	// Architecture is the guest's, by Go's name; empty for amd64.
	Architecture string
	// Machine is the machine type.
	Machine string
	// Secure asks for firmware that enforces secure boot, with keys enrolled; otherwise the
	// firmware has no secure boot.
	Secure bool
	// Feature is one of the descriptors' features, such as amd-sev; empty for none.
	Feature string
	// Stateless asks for firmware without variables, which QEMU loads into the guest's memory.
	Stateless bool
}

// Find returns the first firmware in the descriptors' order that a VM can have. The error is
// ErrMissing if none fits.
func Find(dirs []string, w Wanted) (Firmware, error) {
	paths, err := descriptors(dirs)
	if err != nil {
		return Firmware{}, err
	}
	for _, path := range paths {
		d, err := read(path)
		if err != nil {
			return Firmware{}, err
		}
		if w.Feature != "" && !d.has(w.Feature) || d.enforces() != w.Secure || !w.Secure && d.has("secure-boot") || !d.runs(architectures()[cmp.Or(w.Architecture, "amd64")], w.Machine) {
			continue
		}
		if f, fits := d.firmware(w.Stateless); fits {
			return f, nil
		}
	}
	kind := "without secure boot"
	if w.Secure {
		kind = "with secure boot and enrolled keys"
	}
	if w.Feature != "" {
		kind += " and with the feature " + w.Feature
	}
	return Firmware{}, fmt.Errorf("%w: none for machine type %s %s in %s; install %s on it",
		ErrMissing, w.Machine, kind, strings.Join(dirs, " and "), packages(w.Architecture))
}

// packages returns the names of the packages that have the firmware.
func packages(architecture string) string {
	if architecture == "arm64" {
		return "qemu-efi-aarch64 (Debian) or edk2-aarch64 (Fedora)"
	}
	return "ovmf (Debian) or edk2-ovmf (Fedora)"
}

// descriptors returns the paths of the descriptors, in their order.
func descriptors(dirs []string) ([]string, error) {
	found := map[string]string{}
	for _, dir := range slices.Backward(dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for UEFI firmware: %w", err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".json") {
				found[e.Name()] = filepath.Join(dir, e.Name())
			}
		}
	}
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		paths = append(paths, found[name])
	}
	return paths, nil
}

// read reads a descriptor. An empty file describes nothing: it hides others of its name.
func read(path string) (descriptor, error) {
	var d descriptor
	text, err := os.ReadFile(path)
	if err != nil {
		return d, fmt.Errorf("look for UEFI firmware: %w", err)
	}
	if len(text) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("read description of firmware %s: %w", path, err)
	}
	return d, nil
}

// firmware returns the firmware, if the shim can give it to guests: flash of two raw files, of which the
// guest's is a copy, or if it keeps no variables, one raw file.
func (d descriptor) firmware(stateless bool) (Firmware, bool) {
	m := d.Mapping
	f := Firmware{Code: m.Executable.Name, SMM: d.has("requires-smm")}
	raw := m.Executable.Format == "raw"
	switch {
	case !slices.Contains(d.Interfaces, "uefi"):
		return f, false
	case !stateless:
		f.Variables = m.Template.Name
		return f, m.Device == "flash" && (m.Mode == "" || m.Mode == "split") && raw && m.Template.Format == "raw" &&
			filepath.IsAbs(f.Code) && filepath.IsAbs(f.Variables)
	case m.Device == "memory":
		f.Code = m.Filename
		return f, filepath.IsAbs(f.Code)
	}
	return f, m.Device == "flash" && m.Mode == "stateless" && raw && filepath.IsAbs(f.Code)
}

// runs reports whether the firmware is for machines of this type and architecture, by the descriptors' name.
func (d descriptor) runs(architecture, machine string) bool {
	for _, t := range d.Targets {
		if t.Architecture == architecture && slices.ContainsFunc(t.Machines, func(pattern string) bool {
			matches, err := path.Match(pattern, versioned(machine))
			return matches && err == nil
		}) {
			return true
		}
	}
	return false
}

// versioned returns a machine type with a version, which patterns expect. QEMU's short
// names are those of its latest versions.
func versioned(machine string) string {
	switch machine {
	case "q35":
		return "pc-q35-latest"
	case "virt":
		return "virt-latest"
	case "pc":
		return "pc-i440fx-latest"
	}
	return machine
}

func (d descriptor) has(feature string) bool { return slices.Contains(d.Features, feature) }

// enforces reports whether the firmware starts only what enrolled keys have signed.
func (d descriptor) enforces() bool { return d.has("secure-boot") && d.has("enrolled-keys") }
