package vmspec_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// page tells users what a VMI's spec may say. What stands between the marks is written by
// TestDocs with -update.
const (
	page  = "../../docs/pod.md"
	begin = "<!-- supported: begin; written by go test ./shim/vmspec -run TestDocs -update -->\n"
	end   = "<!-- supported: end -->\n"
)

// TestDocs holds the page against the code: its list of supported fields, and that it tells of
// each annotation.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	list, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no marks around the supported fields:\n%s%s", page, begin, end)
	}
	want := "\n```text\n" + fieldTree(t) + "```\n\n"
	if golden.FlagUpdate() {
		if err := os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		list = want
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("%s is out of date; run with -update: (-code +page)\n%s", page, diff)
	}
	for _, key := range vmspec.Annotations() {
		if !strings.Contains(head, "`"+key+"`") {
			t.Errorf("%s does not tell of annotation %s", page, key)
		}
	}
}

// Where the second column of the list begins, and where it ends.
const (
	valueColumn = 30
	lastColumn  = 100
)

// fieldTree lists the supported fields, each below the object that it is in, with what it takes.
func fieldTree(t *testing.T) string {
	var b strings.Builder
	var parents []string
	for _, path := range vmspec.SupportedPaths() {
		steps := strings.Split(path, ".")[1:] // after "spec"
		for depth, name := range steps[:len(steps)-1] {
			if depth >= len(parents) || parents[depth] != name {
				parents = append(parents[:depth:depth], name)
				fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", depth), name)
			}
		}
		parents = parents[:min(len(parents), len(steps)-1)]
		name := strings.Repeat("  ", len(steps)-1) + steps[len(steps)-1]
		b.WriteString(twoColumns(name, taken(t, path)))
	}
	return b.String()
}

func twoColumns(left, right string) string {
	var b strings.Builder
	line := fmt.Sprintf("%-*s", valueColumn-1, left)
	for word := range strings.FieldsSeq(right) {
		if len(line)+1+len(word) > lastColumn {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", valueColumn-1)
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// taken tells what a field takes, in the words in which the decoder refuses the rest. That a value
// is of the wrong kind is said of all fields; what else is said of one tells more.
func taken(t *testing.T, path string) string {
	t.Helper()
	said := ""
	for _, probe := range []string{
		`[[]]`, `{}`, `false`, `-1`, `"!"`, `"\n"`,
		`"` + strings.Repeat("x", 1<<19) + `"`, `[` + strings.Repeat("{},", 999) + `{}]`,
	} {
		_, problems := vmspec.DecodeVMI([]byte(jsonAt(strings.TrimPrefix(path, "spec."), probe)))
		for _, p := range problems {
			if p.Field != strings.ReplaceAll(path, "[]", "[0]") {
				continue
			}
			kind, _, wrongKind := strings.Cut(p.Detail, ", not ")
			switch {
			case !wrongKind:
				said = p.Detail
			case said == "":
				said = kind
			}
		}
	}
	if said == "" {
		t.Errorf("%s takes anything", path)
	}
	return phrase.Replace(said)
}

// phrase turns the words of a refusal into those of a description.
var phrase = strings.NewReplacer("must be ", "", "must have ", "", "must match ", "",
	" and have ", ", ", "may not be more than ", "at most ", "supported values: ", "one of ",
	"false: not supported; use true or leave it out", "true")
