package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Bounds of the summary, in bytes and lines: some tests fail with a guest's whole console, some with
// the stacks of all goroutines.
const (
	summaryBytes = 9 << 10
	gistBytes    = 3 << 10 // of one test
	lineBytes    = 500
	messageLines = 12 // of one message
	reasonLines  = 40 // of what failed besides tests
	endLines     = 12 // of the begin and of the end of an output without messages
)

// summary prints what failed, as the last output.
func (r *report) summary() {
	for u := range r.running { // cut off with go test itself
		r.failUnfinished(u.pkg)
	}
	shown := slices.DeleteFunc(slices.Clone(r.failures), r.saysNothing)
	slices.SortStableFunc(shown, func(a, b failure) int { return cmp.Compare(b.reasons(), a.reasons()) })
	if len(shown) == 0 {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d tests ran. What failed:\n", r.tests)
	for i, f := range shown {
		text := f.gist()
		if b.Len()+len(text) > summaryBytes && i > 0 {
			fmt.Fprintf(&b, "--- and %d more, which stand above: %s\n", len(shown)-i, names(shown[i:]))
			break
		}
		b.WriteString(text)
	}
	r.print(b.String())
}

// saysNothing is a failure that follows from another: of a package with a test that failed, of a test
// with a subtest that failed, and of tests that waited when one crashed.
func (r *report) saysNothing(f failure) bool {
	return slices.ContainsFunc(r.failures, func(o failure) bool {
		if o.pkg != f.pkg || o.test == f.test {
			return false
		}
		silent := strings.TrimSpace(f.output) == ""
		return f.test == "" && f.reasons() == 0 || silent && (strings.HasPrefix(o.test, f.test+"/") || f.end == unfinished && o.output != "")
	})
}

// reasons counts those that a package has besides its tests: they are few, and come first.
func (f failure) reasons() int {
	if f.test != "" {
		return 0
	}
	return len(reason.FindAllString(f.output, -1))
}

func (f failure) gist() string {
	if f.test == "" {
		return fmt.Sprintf("FAIL: %s %s\n%s", f.pkg, f.end, gist(f.output))
	}
	return fmt.Sprintf("--- FAIL: %s %s of %s\n%s", f.test, f.end, f.pkg, gist(f.output))
}

// names are those of at most a few failures.
func names(all []failure) string {
	const most = 40
	var s []string
	for _, f := range all[:min(len(all), most)] {
		s = append(s, f.pkg[strings.LastIndex(f.pkg, "/")+1:]+"."+f.test)
	}
	return strings.Join(s, ", ")
}

// head begins a message: of t.Error and its like, or of a program's crash.
var head = regexp.MustCompile(`^\s*\w+\.go:\d+: |^(panic|fatal error): |^WARNING: DATA RACE`)

// reason begins what failed besides tests: see node.Ended. It is the last thing that a suite prints.
var reason = regexp.MustCompile(`(?m)^suite failed: `)

// gist is a test's messages, long ones by their first lines. Of a suite that failed besides its tests, it is the reason.
// An output without any, as of a TestMain, is shown by its begin and its end.
func gist(output string) string {
	if all := reason.FindAllStringIndex(output, -1); all != nil {
		output = output[all[len(all)-1][0]:]
	}
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	for i, l := range lines {
		if len(l) > lineBytes {
			lines[i] = strings.ToValidUTF8(l[:lineBytes], "") + " …"
		}
	}
	keep := messages(lines)
	if !slices.Contains(keep, true) {
		for i := range lines {
			keep[i] = i < endLines || i >= len(lines)-endLines
		}
	}
	var b strings.Builder
	for i, l := range lines {
		switch {
		case keep[i]:
			b.WriteString(l + "\n")
		case i > 0 && keep[i-1]:
			b.WriteString("    …\n")
		}
	}
	return b.String()
}

// messages marks the lines to keep of a test's messages, while there is room.
func messages(lines []string) []bool {
	keep := make([]bool, len(lines))
	left, room := 0, gistBytes
	for i, l := range lines {
		switch {
		case reason.MatchString(l):
			left = reasonLines
		case head.MatchString(l):
			left = max(left, messageLines)
		}
		if left > 0 && room >= len(l) {
			keep[i] = true
			left--
			room -= len(l)
		}
	}
	return keep
}
