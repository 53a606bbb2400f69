package domain

import (
	"maps"
	"os"
	"regexp"
	"slices"

	"libvirt.org/go/libvirt"
)

// addFiles adds files to a set of QEMU's descriptors, in place of all that the set has. The
// first is for reading.
func addFiles(dom *libvirt.Domain, set int, files []*os.File) error {
	if err := removeSet(dom, set); err != nil {
		return err
	}
	for i, f := range files {
		arguments := map[string]any{"fdset-id": set}
		if i == 0 {
			arguments["opaque"] = forReading
		}
		if _, err := command(dom, "add-fd", arguments, *f); err != nil {
			return err
		}
	}
	return nil
}

// removeSet closes a set of QEMU's descriptors, if QEMU has it.
func removeSet(dom *libvirt.Domain, set int) error {
	sets, err := setsOf(dom)
	if _, has := sets[set]; err != nil || !has {
		return err
	}
	if _, err = command(dom, "remove-fd", map[string]any{"fdset-id": set}); err != nil {
		return err
	}
	if sets, err = setsOf(dom); err != nil {
		return err
	}
	if _, has := sets[set]; has {
		return ErrPaused
	}
	return nil
}

// setFile is a descriptor in one of QEMU's sets.
type setFile struct {
	FD     int    `json:"fd"`
	Opaque string `json:"opaque"`
}

// forReading marks the descriptor of a set by which QEMU reads.
const forReading = "reading"

// setsOf returns QEMU's sets of descriptors by their numbers.
func setsOf(dom *libvirt.Domain) (map[int][]setFile, error) {
	sets, err := query[[]struct {
		ID  int       `json:"fdset-id"`
		FDs []setFile `json:"fds"`
	}](dom, "query-fdsets", nil)
	all := map[int][]setFile{}
	for _, s := range sets {
		all[s.ID] = s.FDs
	}
	return all, err
}

// ofStorage is how libvirt marks the descriptors of an FD group: by the name of QEMU's node of the file,
// and a number.
var ofStorage = regexp.MustCompile(`^(libvirt-[0-9]+-storage)[0-9]+$`)

// removeUnused closes the sets of FD groups whose files QEMU does not use any more. libvirt leaves them to
// QEMU when a disk is detached, and QEMU keeps them as long as libvirt is connected.
func removeUnused(dom *libvirt.Domain) error {
	sets, err := setsOf(dom)
	if err != nil {
		return err
	}
	nodes, err := nodesOf(dom)
	if err != nil {
		return err
	}
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		if unused(sets[set], nodes) {
			if err := removeSet(dom, set); err != nil {
				return err
			}
		}
	}
	return nil
}

// unused reports whether a set is that of a file for which QEMU has no node.
func unused(set []setFile, nodes map[string]bool) bool {
	for _, fd := range set {
		of := ofStorage.FindStringSubmatch(fd.Opaque)
		if of == nil || nodes[of[1]] {
			return false
		}
	}
	return len(set) > 0
}

// nodesOf returns the names of QEMU's files and formats.
func nodesOf(dom *libvirt.Domain) (map[string]bool, error) {
	nodes, err := blockNodes(dom)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, n := range nodes {
		all[n.Name] = true
	}
	return all, nil
}

// blockNode is a file or a format of QEMU's.
type blockNode struct {
	Name   string `json:"node-name"`
	Driver string `json:"drv"`
	File   string `json:"file"`
	Cache  struct {
		Direct  bool `json:"direct"`
		NoFlush bool `json:"no-flush"`
	} `json:"cache"`
}

func blockNodes(dom *libvirt.Domain) ([]blockNode, error) {
	return query[[]blockNode](dom, "query-named-block-nodes", map[string]any{"flat": true})
}
