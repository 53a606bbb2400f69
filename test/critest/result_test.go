//go:build critest

package critest

import (
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// outcome is how a spec ended: what a golden file has of it, and why it failed.
type outcome struct {
	status string // passed, skipped, or one of ginkgo's words for a failure
	why    string // of a failure: what critest says
}

// The outcomes that are not failures.
const (
	passed  = "passed"
	skipped = "skipped"
)

// result is how each spec of a run ended, by its name.
type result map[string]outcome

// readReport reads the JUnit report that ginkgo writes.
func readReport(path string) (result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var report struct {
		Suites []struct {
			Cases []struct {
				Name    string `xml:"name,attr"`
				Status  string `xml:"status,attr"`
				Failure struct {
					Message string `xml:"message,attr"`
					Text    string `xml:",chardata"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("read critest's report: %w", err)
	}
	r := result{}
	for _, s := range report.Suites {
		for _, c := range s.Cases {
			name, isSpec := strings.CutPrefix(c.Name, "[It] ")
			if !isSpec {
				continue // what is done before or after all of them
			}
			if _, double := r[name]; double {
				return nil, fmt.Errorf("critest's report has two specs %q", name)
			}
			r[name] = outcome{c.Status, strings.TrimSpace(c.Failure.Message + "\n" + c.Failure.Text)}
		}
	}
	return r, nil
}

// text is the result as a golden file has it.
func (r result) text() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(&b, "%s: %s\n", r[name].status, name)
	}
	return b.String()
}

// readResult reads what text wrote.
func readResult(text string) (result, error) {
	r := result{}
	for line := range strings.Lines(text) {
		status, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			return nil, fmt.Errorf("not a spec's outcome: %q", line)
		}
		r[name] = outcome{status: status}
	}
	return r, nil
}

// row is the result in numbers, a line of the table.
func (r result) row(name string) string {
	count := map[string]int{}
	for _, o := range r {
		count[o.status]++
	}
	return fmt.Sprintf("%-34s %6d %6d %7d", name, count[passed], len(r)-count[passed]-count[skipped], count[skipped])
}

// header is the table's first line.
func header() string { return fmt.Sprintf("%-34s %6s %6s %7s", "", "passed", "failed", "skipped") }

// unlike lists the specs that ended in another way than in want.
func (r result) unlike(want result) (all []string) {
	both := maps.Clone(want)
	maps.Copy(both, r)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if got := r[name]; got.status != want[name].status {
			all = append(all, fmt.Sprintf("%s: %q, not %q as without the shim\n%s", name, got.status, want[name].status, got.why))
		}
	}
	return all
}
