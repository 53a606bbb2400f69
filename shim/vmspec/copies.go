package vmspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// copies are the names of the volumes that become copies of a guest's disks.
type copies []string

// parseCopies reads the names of volumes of a pod that waits for the guest of a migration. Those with a PVC are of other
// pods: the guest has got them since it runs.
func parseCopies(text, migration string) (copies, error) {
	if migration == "" {
		return nil, fmt.Errorf("%s: only a pod with the annotation %s waits for a guest", AnnotationCopiedVolumes, AnnotationMigration)
	}
	all := strings.Split(text, ",")
	if len(all) > maxModes {
		return nil, fmt.Errorf("%s: %d entries; at most %d are allowed", AnnotationCopiedVolumes, len(all), maxModes)
	}
	var errs []error
	var own []string
	for i, entry := range all {
		name, _, plugged := strings.Cut(strings.TrimSpace(entry), "=")
		if name == "" || slices.Contains(all[:i], name) {
			errs = append(errs, fmt.Errorf("%s: %q: write the names of volumes, each once", AnnotationCopiedVolumes, excerpt(entry)))
		}
		all[i] = name
		if !plugged {
			own = append(own, name)
		}
	}
	return own, capped(errs)
}

// apply marks the disks that are copied. No other disk is made in their volumes.
func (c copies) apply(disks []Disk) error {
	var errs []error
	for _, name := range c {
		i := slices.IndexFunc(disks, func(d Disk) bool { return d.Name == name })
		if i < 0 || !disks[i].Copies() || disks[i].Origin != "" {
			errs = append(errs, fmt.Errorf("%s: the VM has no disk on a volume %q that it alone writes", AnnotationCopiedVolumes, excerpt(name)))
			continue
		}
		disks[i].Copied, disks[i].Size = true, 0
	}
	return errors.Join(errs...)
}
