package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// TestBoundsTable holds the page's table of bounds against the code's. With -update it writes the page's.
func TestBoundsTable(t *testing.T) {
	const page = "security.md"
	var want strings.Builder
	want.WriteString("\n| what | who makes it grow | bound | test |\n|---|---|---|---|\n")
	for _, b := range bounds.Table() {
		test := ""
		if folder, name, found := strings.Cut(b.Test, "."); found {
			test = "[" + name + "](../" + folder + ")"
		}
		want.WriteString("| " + b.What + " | " + b.Who + " | " + b.Limit + " | " + test + " |\n")
	}
	want.WriteString("\n")
	marks := regexp.MustCompile(`(?s)(<!-- bounds: begin[^>]*-->\n)(.*?)(<!-- bounds: end -->\n)`)
	text, err := os.ReadFile(page)
	assert.NilError(t, err)
	at := marks.FindSubmatchIndex(text)
	assert.Assert(t, at != nil, "%s has no marks around the table", page)
	have := string(text[at[4]:at[5]])
	if golden.FlagUpdate() && have != want.String() {
		text = slices.Concat(text[:at[4]], []byte(want.String()), text[at[5]:])
		assert.NilError(t, os.WriteFile(page, text, 0o644))
		have = want.String()
	}
	if diff := cmp.Diff(want.String(), have); diff != "" {
		t.Errorf("%s is out of date; run with -update: (-code +page)\n%s", page, diff)
	}
}

// TestBoundsAreTested: each bound has a test, which exists.
func TestBoundsAreTested(t *testing.T) {
	for _, b := range bounds.Table() {
		folder, name, _ := strings.Cut(b.Test, ".")
		files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		assert.NilError(t, err)
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			assert.NilError(t, err)
			return strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {")
		}) {
			t.Errorf("%s: no test %s", b.What, b.Test)
		}
	}
}
