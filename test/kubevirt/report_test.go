//go:build kubevirt

package kubevirt

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// conformance is the label of the specs that say whether a cluster serves KubeVirt's API.
const conformance = "conformance"

// maxOutput bounds what is printed of a spec's output, in bytes.
const maxOutput = 8 << 10

// readReport reads ginkgo's report in JSON. Specs that the filters left out are not in the result.
func readReport(file string) (outcomes, error) {
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
			if r.State == passed && r.NumAttempts > 1 {
				text := r.CapturedGinkgoWriterOutput
				fmt.Printf("passed at attempt %d: %s\n%s\n", r.NumAttempts, r.LeafNodeText, text[max(len(text)-maxOutput, 0):])
			}
			_, name, _ := strings.Cut(path.Clean(r.LeafNodeLocation.FileName), "/tests/")
			s := spec{name, words(strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " "))}
			got := outcome{state: r.State}
			if slices.Contains(slices.Concat(append(r.ContainerHierarchyLabels, r.LeafNodeLabels)...), conformance) {
				got.set = conformance
			}
			if r.State != passed {
				got.reason = "not looked into: " + shorten(words(r.Failure.Message))
			}
			if r.State != passed && r.State != "skipped" {
				got.state = "failed" // ginkgo has several words for it
			}
			if before, double := all[s]; double && before.state != got.state {
				got = outcome{set: got.set, state: "failed", reason: "of several specs of these words some fail: " + before.reason + got.reason}
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
