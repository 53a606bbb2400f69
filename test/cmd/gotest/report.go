package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json: see go doc test2json. Those of a build have an ImportPath in
// place of a Package; those of a package have no Test.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// unit is a package, a test of it, or a package's build.
type unit struct{ pkg, test string }

// failure is a unit that failed. One without an end was cut off.
type failure struct {
	unit
	output string
	end    string
}

// report prints go test's events as they come, and keeps what failed.
type report struct {
	out      io.Writer
	verbose  bool
	running  map[unit]*strings.Builder // with what they wrote so far
	failures []failure
	timed    []timed
	tests    int
}

func newReport(out io.Writer, verbose bool) *report {
	return &report{out: out, verbose: verbose, running: map[unit]*strings.Builder{}}
}

func (r *report) print(text string) { _, _ = io.WriteString(r.out, text) }

func (r *report) add(e event) {
	u := unit{cmp.Or(e.Package, e.ImportPath), e.Test}
	if r.running[u] == nil {
		r.running[u] = &strings.Builder{}
	}
	if e.Action == "pass" || e.Action == "fail" {
		r.time(u, e.Elapsed)
	}
	switch e.Action {
	case "output", "build-output":
		r.write(u, e.Output)
	case "fail", "build-fail":
		r.fail(u, fmt.Sprintf("(%.2fs)", e.Elapsed))
	case "pass", "skip":
		r.pass(u)
	}
}

// write keeps what a unit wrote, without the lines by which go test reports tests: events report
// these.
func (r *report) write(u unit, text string) {
	if r.verbose {
		r.print(text)
	}
	if u.test == "" || !frame.MatchString(text) {
		r.running[u].WriteString(text)
	}
}

var frame = regexp.MustCompile(`^ *(=== (RUN|PAUSE|CONT|NAME)|--- (PASS|FAIL|SKIP):) `)

func (r *report) pass(u unit) {
	if u.test != "" {
		r.tests++
	} else if !r.verbose {
		r.print(result(r.running[u].String()))
	}
	delete(r.running, u)
}

// fail prints a unit's output. Tests of a package that did not end have failed before it.
func (r *report) fail(u unit, end string) {
	if u.test == "" {
		r.failUnfinished(u.pkg)
	} else {
		r.tests++
	}
	f := failure{u, r.running[u].String(), end}
	delete(r.running, u)
	r.failures = append(r.failures, f)
	switch {
	case r.verbose:
	case u.test != "":
		r.print(fmt.Sprintf("=== FAIL: %s %s %s\n%s", u.pkg, u.test, end, f.output))
	default:
		r.print(f.output)
	}
}

// unfinished is the end of a test that a crash, a timeout or a signal cut off.
const unfinished = "(unfinished)"

func (r *report) failUnfinished(pkg string) {
	var cut []unit
	for u := range r.running {
		if u.pkg == pkg && u.test != "" {
			cut = append(cut, u)
		}
	}
	slices.SortFunc(cut, func(a, b unit) int { return cmp.Compare(a.test, b.test) })
	for _, u := range cut {
		r.fail(u, unfinished)
	}
}

// result is the last line of a package that passed: its name and time.
func result(output string) string {
	output = strings.TrimSuffix(output, "\n")
	return output[strings.LastIndex(output, "\n")+1:] + "\n"
}
