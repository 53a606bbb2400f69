package specs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// InPage holds the part of a page between the marks of a name against a text. With -update it writes that part.
func InPage(t testing.TB, page, name, part string) {
	t.Helper()
	marks := regexp.MustCompile(fmt.Sprintf(`(?s)(<!-- %[1]s: begin[^>]*-->\n).*(<!-- %[1]s: end -->\n)`, name))
	text, err := os.ReadFile(page)
	assert.NilError(t, err)
	assert.Assert(t, marks.Match(text), "%s has no marks of %s", page, name)
	want := marks.ReplaceAllString(string(text), "${1}\n"+part+"\n${2}")
	if golden.FlagUpdate() {
		assert.NilError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	assert.Equal(t, string(text), want, "run again with -update")
}

// Compare holds a run against a file of outcomes. With -update it takes the run into the file.
func Compare(t testing.TB, file string, run Outcomes) {
	t.Helper()
	want, _ := FromFile(t, file)
	if golden.FlagUpdate() {
		assert.NilError(t, os.WriteFile(file, []byte(want.Update(run).Text()), 0o644))
		return
	}
	if unlike := want.Unlike(run); len(unlike) > 0 {
		t.Errorf("these specs ended in another way than %s says; -update takes them in:\n%s", file, strings.Join(unlike, "\n"))
	}
}

// FromFile reads a file of outcomes.
func FromFile(t testing.TB, path string) (all Outcomes, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	assert.NilError(t, err)
	all, err = Read(string(data))
	assert.NilError(t, err)
	return all, string(data)
}

// Reasons reports each spec of a file that does not pass and has no reason that a person wrote.
func Reasons(t testing.TB, path string) {
	t.Helper()
	all, text := FromFile(t, path)
	for _, problem := range all.withoutReason() {
		t.Error(problem)
	}
	assert.Equal(t, all.Text(), text)
}
