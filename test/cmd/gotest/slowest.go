package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The number of slowest tests that are listed, and the least seconds of each.
const (
	slowest = 10
	slow    = 10
)

// timed is a test, without its subtests, and how many seconds it took, the waits of a parallel one
// included.
type timed struct {
	unit
	seconds float64
}

// time notes how long a test took.
func (r *report) time(u unit, seconds float64) {
	if u.test != "" && !strings.Contains(u.test, "/") && seconds >= slow {
		r.timed = append(r.timed, timed{u, seconds})
	}
}

// slow lists the slowest tests.
func (r *report) slow() {
	slices.SortFunc(r.timed, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, t := range r.timed[:min(len(r.timed), slowest)] {
		if i == 0 {
			r.print("\nThe slowest tests:\n")
		}
		r.print(fmt.Sprintf("%7.0f s  %s of %s\n", t.seconds, t.test, t.pkg))
	}
}
