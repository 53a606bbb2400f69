package release

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

const module = "github.com/nodevirt/nodevirt"

// SBOM writes the bill of materials of programs that Go has linked, as CycloneDX JSON: each program
// with its checksum, and the modules that it contains. The same programs, version and time give the
// same text.
func SBOM(w io.Writer, version string, at time.Time, programs []string) error {
	components, edges, err := Components(version, programs)
	if err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	var refs []string
	for _, c := range components {
		if c.Type == cyclonedx.ComponentTypeApplication {
			refs = append(refs, c.BOMRef)
		}
	}
	slices.Sort(refs)
	top := cyclonedx.Component{
		BOMRef: purl(module, version), Type: cyclonedx.ComponentTypeApplication,
		Name: "nodevirt", Version: version, PackageURL: purl(module, version),
	}
	edges = append(edges, cyclonedx.Dependency{Ref: top.BOMRef, Dependencies: &refs})
	slices.SortFunc(edges, func(a, b cyclonedx.Dependency) int { return cmp.Compare(a.Ref, b.Ref) })
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: at.UTC().Format(time.RFC3339), Component: &top}
	bom.Components, bom.Dependencies = &components, &edges
	return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// Components returns programs that Go has linked and the modules that they contain, in order, and which program
// contains which.
func Components(version string, programs []string) ([]cyclonedx.Component, []cyclonedx.Dependency, error) {
	all := map[string]cyclonedx.Component{}
	var edges []cyclonedx.Dependency
	for _, file := range programs {
		program, info, err := read(file, version)
		if err != nil {
			return nil, nil, err
		}
		all[program.BOMRef] = program
		var parts []string
		for _, part := range modules(info) {
			all[part.BOMRef] = part
			parts = append(parts, part.BOMRef)
		}
		slices.Sort(parts)
		edges = append(edges, cyclonedx.Dependency{Ref: program.BOMRef, Dependencies: &parts})
	}
	components := make([]cyclonedx.Component, 0, len(all))
	for _, ref := range slices.Sorted(maps.Keys(all)) {
		components = append(components, all[ref])
	}
	return components, edges, nil
}

// read describes a program by its file.
func read(file, version string) (cyclonedx.Component, *debug.BuildInfo, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return cyclonedx.Component{}, nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(text))
	if err != nil {
		return cyclonedx.Component{}, nil, fmt.Errorf("%s: %w", file, err)
	}
	sum := sha256.Sum256(text)
	name := filepath.Base(file)
	return cyclonedx.Component{
		BOMRef: "program:" + name + "/" + architecture(info), Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version,
		Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}, info, nil
}

// architecture is what a program was built for, by Go's name.
func architecture(info *debug.BuildInfo) string {
	for _, s := range info.Settings {
		if s.Key == "GOARCH" {
			return s.Value
		}
	}
	return "unknown"
}

// modules returns the modules that a program contains, and Go's standard library.
func modules(info *debug.BuildInfo) []cyclonedx.Component {
	all := []cyclonedx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, library(m.Path, m.Version))
	}
	return all
}

func library(path, version string) cyclonedx.Component {
	return cyclonedx.Component{
		BOMRef: purl(path, version), Type: cyclonedx.ComponentTypeLibrary,
		Name: path, Version: version, PackageURL: purl(path, version),
	}
}

// purl returns a package URL of Go's type, in which only "+" of a version needs an escape.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}
