//go:build kubevirt

package kubevirt

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/specs"
)

// fastVariable, with any value, has the suite run the specs of fastFile alone, which pass in a few minutes.
const fastVariable = "KUBEVIRT_FAST"

// fastFile has the words of a spec in each line.
const fastFile = "fast.txt"

func fastSpecs(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(golden.Path(fastFile))
	assert.NilError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// focus is the regular expression of the specs to run.
func focus(t *testing.T) string {
	t.Helper()
	if os.Getenv(fastVariable) == "" {
		return os.Getenv(focusVariable)
	}
	return anyOf(fastSpecs(t))
}

// anyOf is a regular expression that matches specs of these words, and none whose words only begin so.
func anyOf(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, strings.ReplaceAll(regexp.QuoteMeta(w), " ", `\s+`)+`\s*$`)
	}
	return strings.Join(all, "|")
}

// checkFast reports specs of the fast set that did not run: the suite has them no more, or by other words.
func checkFast(t *testing.T, got specs.Outcomes) {
	t.Helper()
	if os.Getenv(fastVariable) == "" {
		return
	}
	ran := map[string]bool{}
	for s := range got {
		ran[s.Text] = true
	}
	for _, words := range fastSpecs(t) {
		if !ran[words] {
			t.Errorf("testdata/%s: did not run: %s", fastFile, words)
		}
	}
}
