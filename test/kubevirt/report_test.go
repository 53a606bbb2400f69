//go:build kubevirt

package kubevirt

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// table counts the outcomes by the specs' files.
func (o outcomes) table() string {
	counts, total := map[string]map[string]int{}, map[string]int{}
	for s, got := range o {
		if counts[s.file] == nil {
			counts[s.file] = map[string]int{}
		}
		counts[s.file][got.state]++
		total[got.state]++
	}
	var b strings.Builder
	row := func(name string, n map[string]int) {
		fmt.Fprintf(&b, "%-44s %7d %7d %7d\n", name, n[passed], n["failed"], n["skipped"])
	}
	fmt.Fprintf(&b, "%-44s %7s %7s %7s\n", "", passed, "failed", "skipped")
	for _, file := range slices.Sorted(maps.Keys(counts)) {
		row(file, counts[file])
	}
	row("all", total)
	return b.String()
}

// readReport reads ginkgo's report in JSON. Specs that the filters left out are not in the result.
func readReport(file string) (outcomes, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			LeafNodeLocation           struct{ FileName string }
			State                      string
			Failure                    struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, fmt.Errorf("read the suite's report: %w", err)
	}
	all := outcomes{}
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			if r.LeafNodeType != "It" || r.State == "pending" || r.State == "skipped" && r.Failure.Message == "" {
				continue
			}
			_, name, _ := strings.Cut(path.Clean(r.LeafNodeLocation.FileName), "/tests/")
			s := spec{name, words(strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " "))}
			got := outcome{state: r.State}
			if r.State != passed {
				got.reason = "not looked into: " + shorten(words(r.Failure.Message))
			}
			if r.State != passed && r.State != "skipped" {
				got.state = "failed" // ginkgo has several words for it
			}
			if before, double := all[s]; double && before.state != got.state {
				got = outcome{state: "failed", reason: "of several specs of these words some fail: " + before.reason + got.reason}
			}
			all[s] = got
		}
	}
	return all, nil
}

var (
	space  = regexp.MustCompile(`\s+`)
	unique = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}`)
)

// words are a text on one line, without what differs in each run.
func words(text string) string {
	return strings.TrimSpace(unique.ReplaceAllString(space.ReplaceAllString(text, " "), "…"))
}

func shorten(text string) string {
	const most = 240
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}
