package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// failed returns the failed tests of each package, without subtests. ok is false if a second try
// makes no sense: more than most tests failed, or something else did, such as a build or a whole
// package.
func (r *report) failed(most int) (of map[string][]string, ok bool) {
	of = map[string][]string{}
	all := 0
	for _, f := range r.failures {
		switch test, _, sub := strings.Cut(f.test, "/"); {
		case f.end == unfinished, f.test == "" && !r.saysNothing(f):
			return nil, false
		case f.test != "" && !sub:
			of[f.pkg] = append(of[f.pkg], test)
			all++
		}
	}
	return of, all > 0 && all <= most
}

// again returns the arguments that run some tests of one package, in place of args' packages.
func again(args []string, pkg string, tests []string) []string {
	var out []string
	for _, a := range args {
		switch {
		case !strings.HasPrefix(a, "./"):
			out = append(out, a)
		case !slices.Contains(out, pkg):
			out = append(out, pkg)
		}
	}
	var names []string
	for _, t := range tests {
		names = append(names, regexp.QuoteMeta(t))
	}
	return append(out, "-run", "^("+strings.Join(names, "|")+")$")
}

// late names the tests that passed at the second try, and whether each is on the list of unsteady tests.
func late(of map[string][]string, known []unsteady) string {
	var b strings.Builder
	b.WriteString("\nFailed once, and passed at the second try:\n")
	for _, pkg := range slices.Sorted(maps.Keys(of)) {
		for _, test := range of[pkg] {
			on := "not in " + listFile + ": add it there, and repair it"
			for _, u := range known {
				if u.test == test && strings.HasSuffix(pkg, "/"+u.pkg) {
					on = "unsteady since " + u.since
				}
			}
			fmt.Fprintf(&b, "  %s of %s: %s\n", test, pkg, on)
		}
	}
	return b.String()
}
