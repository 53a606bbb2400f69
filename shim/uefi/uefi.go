// Package uefi finds the UEFI firmware that a node has for guests.
//
// It owns the search in the descriptors that packages of firmware install for QEMU
// (QEMU's docs/interop/firmware.json). It opens no firmware, and leaves the copy of
// the variables to package vmfile.
package uefi

import (
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
	// the path of the template of a guest's variables.
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

// Find returns the first firmware in the descriptors' order that fits a machine type.
// Secure asks for one that enforces secure boot, with keys enrolled; otherwise the
// firmware has no secure boot. The error is ErrMissing if none fits.
func Find(dirs []string, machine string, secure bool) (Firmware, error) {
	paths, err := descriptors(dirs)
	if err != nil {
		return Firmware{}, err
	}
	for _, path := range paths {
		d, err := read(path)
		if err != nil {
			return Firmware{}, err
		}
		if d.fits(machine) && d.enforces() == secure && (secure || !d.has("secure-boot")) {
			return Firmware{Code: d.Mapping.Executable.Name, Variables: d.Mapping.Template.Name, SMM: d.has("requires-smm")}, nil
		}
	}
	kind := "without secure boot"
	if secure {
		kind = "with secure boot and enrolled keys"
	}
	return Firmware{}, fmt.Errorf("%w: none for machine type %s %s in %s; install ovmf (Debian) or edk2-ovmf (Fedora) on it",
		ErrMissing, machine, kind, strings.Join(dirs, " and "))
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

// fits reports whether the shim can give the firmware to machines of this type: flash of
// two raw files, of which the guest's is a copy.
func (d descriptor) fits(machine string) bool {
	m := d.Mapping
	if m.Device != "flash" || m.Mode != "" && m.Mode != "split" || m.Executable.Format != "raw" || m.Template.Format != "raw" ||
		!filepath.IsAbs(m.Executable.Name) || !filepath.IsAbs(m.Template.Name) || !slices.Contains(d.Interfaces, "uefi") {
		return false
	}
	for _, t := range d.Targets {
		if t.Architecture == "x86_64" && slices.ContainsFunc(t.Machines, func(pattern string) bool {
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
	case "pc":
		return "pc-i440fx-latest"
	}
	return machine
}

func (d descriptor) has(feature string) bool { return slices.Contains(d.Features, feature) }

// enforces reports whether the firmware starts only what enrolled keys have signed.
func (d descriptor) enforces() bool { return d.has("secure-boot") && d.has("enrolled-keys") }
