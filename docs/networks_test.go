package docs_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// TestNetworks holds the page's matrix of networks against the answers that netsetup's TestMatrix has recorded. With -update
// it writes the page's.
func TestNetworks(t *testing.T) {
	const page, record = "networks.md", "../netsetup/testdata/matrix.tsv"
	recorded, err := os.ReadFile(record)
	assert.NilError(t, err)
	want := networkTable(t, string(recorded))
	fixed, err := os.ReadFile("../controller/vmi/migratable.go")
	assert.NilError(t, err)
	for _, reason := range regexp.MustCompile("cannot migrate [^`]+").FindAllString(want, -1) {
		assert.Assert(t, strings.Contains(string(fixed), reason), "no instance says %q", reason)
	}
	marks := regexp.MustCompile(`(?s)(<!-- networks: begin[^>]*-->\n)(.*?)(<!-- networks: end -->\n)`)
	text, err := os.ReadFile(page)
	assert.NilError(t, err)
	at := marks.FindSubmatchIndex(text)
	assert.Assert(t, at != nil, "%s has no marks around the table", page)
	have := string(text[at[4]:at[5]])
	if golden.FlagUpdate() && have != want {
		text = slices.Concat(text[:at[4]], []byte(want), text[at[5]:])
		assert.NilError(t, os.WriteFile(page, text, 0o644))
		have = want
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s is out of date; run with -update: (-record +page)\n%s", page, diff)
	}
}

// networkTable returns the recorded answers as a table, with the reasons of refusals below it.
func networkTable(t *testing.T, recorded string) string {
	t.Helper()
	families := map[string]string{"4": "IPv4", "6": "IPv6", "4 6": "both"}
	var table strings.Builder
	var reasons []string
	for i, line := range strings.Split(strings.TrimSpace(recorded), "\n") {
		cells := strings.Split(line, "\t")
		assert.Assert(t, len(cells) > 3, line)
		if i == 0 {
			fmt.Fprintf(&table, "\n| %s |\n|%s\n", strings.Join(cells, " | "), strings.Repeat("---|", len(cells)))
			continue
		}
		cells[1] = families[cells[1]]
		for j, cell := range cells {
			reason, refused := strings.CutPrefix(cell, "refused: ")
			if !refused {
				continue
			}
			at := slices.Index(reasons, reason)
			if at < 0 {
				at, reasons = len(reasons), append(reasons, reason)
			}
			cells[j] = fmt.Sprintf("no (%d)", at+1)
		}
		fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | "))
	}
	table.WriteString("\n")
	for i, reason := range reasons {
		fmt.Fprintf(&table, "%d. `%s`\n", i+1, reason)
	}
	table.WriteString("\n")
	return table.String()
}
