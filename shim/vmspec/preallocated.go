package vmspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// preallocated are the names of the volumes whose storage is allocated in advance.
type preallocated []string

// parsePreallocated reads the names of volumes with commas between.
func parsePreallocated(text string) (preallocated, error) {
	all := strings.Split(text, ",")
	if len(all) > maxModes {
		return nil, fmt.Errorf("%s: %d entries; at most %d are allowed", AnnotationPreallocated, len(all), maxModes)
	}
	var errs []error
	for i, entry := range all {
		name := strings.TrimSpace(entry)
		if name == "" || slices.Contains(all[:i], name) {
			errs = append(errs, fmt.Errorf("%s: %q: write the names of volumes, each once", AnnotationPreallocated, excerpt(entry)))
		}
		all[i] = name
	}
	return all, capped(errs)
}

// apply marks the disks. Their guests write to the volume itself: other disks have nothing that is allocated.
func (p preallocated) apply(disks []Disk) error {
	var errs []error
	for _, name := range p {
		i := slices.IndexFunc(disks, func(d Disk) bool { return d.Name == name })
		if i < 0 || !disks[i].Allocatable() {
			errs = append(errs, fmt.Errorf("%s: the VM has no disk on a volume %q that it writes", AnnotationPreallocated, excerpt(name)))
			continue
		}
		disks[i].Preallocated = true
	}
	return errors.Join(errs...)
}

// Allocatable reports whether the disk can be one whose storage is allocated in advance.
func (d Disk) Allocatable() bool {
	return (d.Source == SourcePVC || d.Source == SourceISCSI || d.Source == SourceRBD) && !d.ReadOnly && !d.CDROM
}
