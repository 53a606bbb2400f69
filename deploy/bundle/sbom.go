package bundle

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	"github.com/nodevirt/nodevirt/deploy/release"
)

// bom lists the packages with their licences, and nodevirt's programs with the modules that they contain. It has no time:
// the same image has the same bill.
func (t *tree) bom(o Options, packages []Package) (*cyclonedx.BOM, error) {
	var files []string
	for _, name := range programs() {
		files = append(files, filepath.Join(o.Programs, filepath.Base(name)))
	}
	components, edges, err := release.Components(o.Version, files)
	if err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	for _, p := range packages {
		c, err := t.component(o.Architecture, p)
		if err != nil {
			return nil, fmt.Errorf("bill of materials: %w", err)
		}
		components = append(components, c)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: "nodevirt-bundle/" + o.Architecture, Type: cyclonedx.ComponentTypeContainer, Name: "nodevirt-bundle", Version: o.Version,
	}}
	bom.Components, bom.Dependencies = &components, &edges
	return bom, nil
}

func (t *tree) component(architecture string, p Package) (cyclonedx.Component, error) {
	names, err := t.licences(p.Name)
	if err != nil {
		return cyclonedx.Component{}, err
	}
	var all cyclonedx.Licenses
	for _, name := range names {
		all = append(all, cyclonedx.LicenseChoice{License: &cyclonedx.License{Name: name}})
	}
	purl := "pkg:deb/debian/" + url.PathEscape(p.Name) + "@" + url.QueryEscape(p.Version) + "?arch=" + architecture
	return cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: purl,
		Licenses:   &all,
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: p.SHA256}},
		Properties: &[]cyclonedx.Property{{Name: "nodevirt:layer", Value: p.Layer}},
	}, nil
}

// licences returns the names of a package's licences, as Debian's copyright files have them.
func (t *tree) licences(name string) ([]string, error) {
	file, _ := t.resolve("usr/share/doc/" + name + "/copyright")
	e, ok := t.entries[file]
	if !ok || e.kind != tar.TypeReg {
		return nil, fmt.Errorf("package %s has no file usr/share/doc/%s/copyright", name, name)
	}
	text, err := io.ReadAll(t.open(e))
	if err != nil {
		return nil, err
	}
	found := parseLicences(string(text))
	if len(found) == 0 {
		return nil, fmt.Errorf("package %s: %s names no licence that can be found", name, file)
	}
	return found, nil
}

// parseLicences reads a copyright file in Debian's machine-readable form, or finds the licences that one in free text
// refers to or begins with.
func parseLicences(text string) []string {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "License:"); ok && strings.TrimSpace(name) != "" {
			names[strings.Join(strings.Fields(name), " ")] = true
		}
	}
	if len(names) == 0 {
		for _, match := range regexp.MustCompile(`/usr/share/common-licenses/([A-Za-z]+(-[0-9.]*[0-9])?)`).FindAllStringSubmatch(text, -1) {
			names[match[1]] = true
		}
	}
	if len(names) == 0 {
		for _, known := range [][2]string{
			{"Permission is hereby granted, free of charge", "MIT"},
			{"Redistribution and use in source and binary forms", "BSD"},
			{"public domain", "public-domain"},
			{"GNU Lesser General Public License, version 2.1", "LGPL-2.1"},
			{"Permission to use, copy, modify", "ISC"},
		} {
			if strings.Contains(strings.Join(strings.Fields(text), " "), known[0]) {
				names[known[1]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
