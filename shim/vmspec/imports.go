package vmspec

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxImports bounds how many disks AnnotationImports names.
const maxImports = 16

// importPrefix begins the names of imported disks in their machine.
const importPrefix = "import-"

// parseImports reads the names in AnnotationImports.
func parseImports(text string) ([]string, error) {
	var names []string
	parts := strings.Split(text, ",")
	if len(parts) > maxImports {
		return nil, fmt.Errorf("%s: %d disks; at most %d are allowed", AnnotationImports, len(parts), maxImports)
	}
	var errs []error
	for _, part := range parts {
		name := strings.TrimSpace(part)
		switch {
		case len(validation.IsDNS1123Label(name)) > 0:
			errs = append(errs, fmt.Errorf("%s: %q is no import's name", AnnotationImports, excerpt(name)))
		case slices.Contains(names, name):
			errs = append(errs, fmt.Errorf("%s: %q is listed twice", AnnotationImports, name))
		default:
			names = append(names, name)
		}
	}
	return names, capped(errs)
}

// addImports adds imported disks behind a machine's own.
func addImports(disks []Disk, names []string) ([]Disk, error) {
	for _, name := range names {
		d := Disk{Name: importPrefix + name, Source: SourceImport, Import: name, Bus: BusVirtio}
		if slices.ContainsFunc(disks, func(other Disk) bool { return other.Name == d.Name }) {
			return nil, fmt.Errorf("%s: the VM has a disk %q already", AnnotationImports, d.Name)
		}
		disks = append(disks, d)
	}
	return disks, nil
}
