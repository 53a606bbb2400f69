package specs

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxOutput bounds what is printed of a spec's output, in bytes.
const maxOutput = 8 << 10

// cut is ginkgo's message of a spec that ran when the time of its suite was over.
const cut = "A suite timeout occurred"

// ReadReport reads ginkgo's report in JSON. Specs that the filters left out are not in the result, nor are those that
// the suite's end by its time limit or by a signal cut off, or that had not begun then. Their
// files are named without folder, a part of their paths such as "/tests/", and what is before it. A spec
// with the label set is in that set. Specs for whose output, with the names of its steps, counts is false are left out.
func ReadReport(file, folder, set string, counts func(output string) bool) (Outcomes, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			ContainerHierarchyLabels   [][]string
			LeafNodeLabels             []string
			LeafNodeType, LeafNodeText string
			LeafNodeLocation           struct{ FileName string }
			State                      string
			Failure                    struct{ Message string }
			NumAttempts                int
			CapturedGinkgoWriterOutput string
			SpecEvents                 []struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, fmt.Errorf("read the suite's report: %w", err)
	}
	all := Outcomes{}
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			if r.LeafNodeType != "It" || r.State == "pending" || r.State == Skipped && r.Failure.Message == "" ||
				r.State == "interrupted" || r.State == "timedout" && r.Failure.Message == cut {
				continue
			}
			said := []string{r.CapturedGinkgoWriterOutput}
			for _, step := range r.SpecEvents {
				said = append(said, step.Message)
			}
			if !counts(strings.Join(said, "\n")) {
				continue
			}
			if r.State == Passed && r.NumAttempts > 1 {
				text := r.CapturedGinkgoWriterOutput
				fmt.Printf("passed at attempt %d: %s\n%s\n", r.NumAttempts, r.LeafNodeText, text[max(len(text)-maxOutput, 0):])
			}
			_, name, _ := strings.Cut(path.Clean(r.LeafNodeLocation.FileName), folder)
			s := Spec{name, words(strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " "))}
			got := Outcome{State: r.State}
			if slices.Contains(slices.Concat(append(r.ContainerHierarchyLabels, r.LeafNodeLabels)...), set) {
				got.Set = set
			}
			if r.State != Passed {
				got.Reason = unexplained + shorten(words(r.Failure.Message))
			}
			if r.State != Passed && r.State != Skipped {
				got.State = Failed
			}
			if before, double := all[s]; double && before.State != got.State {
				got = Outcome{Set: got.Set, State: Failed, Reason: "of several specs of these words some fail: " + before.Reason + got.Reason}
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

// All is what counts if each spec does.
func All(string) bool { return true }

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
