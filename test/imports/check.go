package imports

import (
	"fmt"
	"slices"
	"strings"
)

// Package is a package with what it imports of the project, all as paths below the
// module's.
type Package struct {
	Path    string
	Imports []string
}

// Check returns a line for each package without a place in the order and for each
// import that the order forbids.
func Check(all []Package) []string {
	var problems []string
	for _, p := range all {
		from, ok := place(p.Path)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s: no layer has this package; add it to test/imports/order.go", p.Path))
			continue
		}
		for _, to := range p.Imports {
			below, ok := place(to)
			if ok && below.layer <= from.layer && below != from {
				problems = append(problems, fmt.Sprintf("%s imports %s: an arrow up in test/imports/order.go", p.Path, to))
			}
			for _, b := range bans() {
				if covers(b.from, p.Path) && covers(b.to, to) && !slices.Contains(b.except, to) {
					problems = append(problems, fmt.Sprintf("%s imports %s: %s", p.Path, to, b.why))
				}
			}
		}
	}
	return problems
}

// entry is a place in the order.
type entry struct {
	layer int
	name  string
}

// place returns the entry that covers a package most exactly.
func place(path string) (entry, bool) {
	best, found := entry{}, false
	for i, layer := range layers() {
		for _, name := range layer {
			if covers(name, path) && (!found || len(name) > len(best.name)) {
				best, found = entry{i, name}, true
			}
		}
	}
	return best, found
}

// covers reports whether an entry covers a package: its own, or those below it too
// if the entry ends in "...".
func covers(entry, path string) bool {
	top, all := strings.CutSuffix(entry, "...")
	if !all {
		return entry == path
	}
	return strings.HasPrefix(path+"/", top)
}
