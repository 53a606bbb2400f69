package vmspec

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// blanks are the sizes in bytes of the disks that the node creates, by PVC.
type blanks map[string]int64

// maxBlank is the size of a disk that no volume has.
const maxBlank = 1 << 60

// parseBlanks reads PVC=SIZE, or a list of these with commas.
func parseBlanks(text string) (blanks, error) {
	parts := strings.Split(text, ",")
	if len(parts) > maxModes {
		return nil, fmt.Errorf("%s: %d entries; at most %d are allowed", AnnotationBlankDisks, len(parts), maxModes)
	}
	all := blanks{}
	var errs []error
	for _, part := range parts {
		pvc, text, ok := strings.Cut(part, "=")
		pvc, text = strings.TrimSpace(pvc), strings.TrimSpace(text)
		size, err := resource.ParseQuantity(text)
		switch {
		case !ok || pvc == "" || err != nil || len(text) > maxLabel:
			errs = append(errs, fmt.Errorf("%s: %q: write VOLUME=SIZE, such as data=10Gi", AnnotationBlankDisks, excerpt(part)))
			continue
		case size.Value() < mebibyte || size.Value() > maxBlank:
			errs = append(errs, fmt.Errorf("%s: %q: a disk has at least 1Mi and at most 1Ei", AnnotationBlankDisks, excerpt(part)))
		case all[pvc] != 0:
			errs = append(errs, fmt.Errorf("%s: volume %q has a size already", AnnotationBlankDisks, excerpt(pvc)))
		}
		all[pvc] = size.Value() / mebibyte * mebibyte
	}
	return all, capped(errs)
}

// blankOf is the one disk to create of a size in bytes; none if that is too small for a disk.
func blankOf(pvc string, size int64) blanks {
	if size < mebibyte {
		return nil
	}
	return blanks{pvc: min(size, maxBlank) / mebibyte * mebibyte}
}

// apply sets the sizes of the disks to create.
func (b blanks) apply(disks []Disk) error {
	var errs []error
	for name, size := range b {
		i := slices.IndexFunc(disks, func(d Disk) bool { return d.Name == name })
		switch {
		case i < 0 || disks[i].Source != SourcePVC:
			errs = append(errs, fmt.Errorf("%s: the container has no volume %q but images; mount a PVC at a path that ends in it",
				AnnotationBlankDisks, excerpt(name)))
		case disks[i].Block || disks[i].ReadOnly:
			errs = append(errs, fmt.Errorf("%s: volume %q is a device or read-only; leave it out", AnnotationBlankDisks, excerpt(name)))
		default:
			disks[i].Size = size
		}
	}
	return joinSorted(errs)
}
