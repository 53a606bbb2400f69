package vmspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// parseOrigins reads PVC=DISK, or a list of these with commas.
func parseOrigins(text string) (map[string]string, error) {
	parts := strings.Split(text, ",")
	if len(parts) > maxModes {
		return nil, fmt.Errorf("%s: %d entries; at most %d are allowed", AnnotationDiskOrigin, len(parts), maxModes)
	}
	origins := map[string]string{}
	var errs []error
	for _, part := range parts {
		pvc, disk, ok := strings.Cut(part, "=")
		pvc, disk = strings.TrimSpace(pvc), strings.TrimSpace(disk)
		switch {
		case !ok || pvc == "" || disk == "":
			errs = append(errs, fmt.Errorf("%s: %q: write VOLUME=DISK", AnnotationDiskOrigin, excerpt(part)))
		case origins[pvc] != "":
			errs = append(errs, fmt.Errorf("%s: volume %q has an origin already", AnnotationDiskOrigin, excerpt(pvc)))
		}
		origins[pvc] = disk
	}
	return origins, capped(errs)
}

// applyOrigins makes PVCs copies of registry disks, which are then no separate
// disks. A PVC whose origin is the container's own disk boots in its place.
func applyOrigins(disks []Disk, origins map[string]string) ([]Disk, error) {
	find := func(name string) int { return slices.IndexFunc(disks, func(d Disk) bool { return d.Name == name }) }
	taken := map[string]bool{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(origins)) {
		pvc, origin := find(name), find(origins[name])
		switch {
		case pvc < 0 || disks[pvc].Source != SourcePVC:
			errs = append(errs, fmt.Errorf("%s: the container has no volume %q but images; mount a PVC at a path that ends in it",
				AnnotationDiskOrigin, excerpt(name)))
			continue
		case origin < 0 || !disks[origin].Registry():
			errs = append(errs, fmt.Errorf("%s: %q is no registry disk of this VM; the image's own is %q",
				AnnotationDiskOrigin, excerpt(origins[name]), ownDisk))
			continue
		}
		from, to := disks[origin], &disks[pvc]
		to.Origin, to.Image, to.Path = OriginVolume, from.Image, from.Path
		if from.Source == SourceImage {
			to.Origin = OriginOwn
		}
		if to.BootOrder == 0 {
			to.BootOrder = from.BootOrder
		}
		taken[from.Name] = true
	}
	left := slices.DeleteFunc(slices.Clone(disks), func(d Disk) bool { return taken[d.Name] })
	boots := map[uint]bool{}
	for _, d := range left {
		if d.BootOrder > 0 && boots[d.BootOrder] {
			errs = append(errs, fmt.Errorf("%s: %q is the origin of several volumes", AnnotationDiskOrigin, ownDisk))
		}
		boots[d.BootOrder] = true
	}
	return left, capped(errs)
}
