package vmspec_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// list is one of the lists of supported fields in the docs. What stands between the marks is
// written by TestDocs with -update.
type list struct {
	page, name string
	paths      []string
	sorted     bool // and not in the order of the code
	// check finds the problems of a spec, in JSON.
	check func(text string) field.ErrorList
}

func lists(t *testing.T) []list {
	t.Helper()
	root := field.NewPath("spec")
	return []list{
		{"../../docs/pod.md", "supported", vmspec.SupportedPaths(), false, func(text string) field.ErrorList {
			_, problems := vmspec.DecodeVMI([]byte(text))
			return problems
		}},
		{"../../docs/vm-fields.md", "pods", vmspec.ManifestPaths(), true, func(text string) field.ErrorList {
			_, problems := vmspec.CheckVMI(root, tree(t, text))
			return problems
		}},
		{"../../docs/vm-fields.md", "vms", vmspec.VMPaths(), true, func(text string) field.ErrorList {
			_, problems := vmspec.CheckVM(root, tree(t, text))
			return problems
		}},
		{"../../docs/vm-fields.md", "sets", vmspec.ReplicaSetPaths(), true, func(text string) field.ErrorList {
			_, problems := vmspec.CheckReplicaSet(root, tree(t, text))
			return problems
		}},
		{"../../docs/instancetypes.md", "instancetypes", vmspec.InstancetypePaths(), true, func(text string) field.ErrorList {
			_, problems := vmspec.CheckInstancetype(root, tree(t, text))
			return problems
		}},
		{"../../docs/instancetypes.md", "preferences", vmspec.PreferencePaths(), true, func(text string) field.ErrorList {
			_, problems := vmspec.CheckPreference(root, tree(t, text))
			return problems
		}},
	}
}

// TestDocs holds the pages' lists of supported fields against the code.
func TestDocs(t *testing.T) {
	for _, l := range lists(t) {
		begin := "<!-- " + l.name + ": begin; written by go test ./shim/vmspec -run TestDocs -update -->\n"
		end := "<!-- " + l.name + ": end -->\n"
		text, err := os.ReadFile(l.page)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, ok := strings.Cut(string(text), begin)
		have, tail, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no marks around the supported fields:\n%s%s", l.page, begin, end)
		}
		want := "\n```text\n" + l.tree(t) + "```\n\n"
		if golden.FlagUpdate() {
			if err := os.WriteFile(l.page, []byte(head+begin+want+end+tail), 0o644); err != nil {
				t.Fatal(err)
			}
			have = want
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s is out of date; run with -update: (-code +page)\n%s", l.page, diff)
		}
	}
}

// TestDocsOfAnnotations: each annotation is told of.
func TestDocsOfAnnotations(t *testing.T) {
	text, err := os.ReadFile("../../docs/pod.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range vmspec.Annotations() {
		if !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("docs/pod.md does not tell of annotation %s", key)
		}
	}
}

// Where the second column of the list begins, and where it ends.
const (
	valueColumn = 30
	lastColumn  = 100
)

// tree lists the supported fields, each below the object that it is in, with what it takes.
func (l list) tree(t *testing.T) string {
	var b strings.Builder
	var parents []string
	if l.sorted {
		slices.Sort(l.paths)
	}
	for _, path := range l.paths {
		steps := strings.Split(path, ".")[1:] // after "spec"
		for depth, name := range steps[:len(steps)-1] {
			if depth >= len(parents) || parents[depth] != name {
				parents = append(parents[:depth:depth], name)
				fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", depth), name)
			}
		}
		parents = parents[:min(len(parents), len(steps)-1)]
		name := strings.Repeat("  ", len(steps)-1) + steps[len(steps)-1]
		b.WriteString(twoColumns(name, l.taken(t, path)))
	}
	return b.String()
}

func twoColumns(left, right string) string {
	var b strings.Builder
	if len(left) >= valueColumn {
		b.WriteString(left + "\n")
		left = ""
	}
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
func (l list) taken(t *testing.T, path string) string {
	t.Helper()
	said := vmspec.Wholes()[path]
	if said != "" {
		return said
	}
	for _, probe := range []string{
		`[[]]`, `{}`, `false`, `true`, `-1`, `"!"`, `"\n"`,
		`"` + strings.Repeat("x", 1<<19) + `"`, `[` + strings.Repeat("{},", 999) + `{}]`,
	} {
		for _, p := range l.check(jsonAt(strings.TrimPrefix(path, "spec."), probe)) {
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
	"false: not supported; use true or leave it out", "true",
	"true: not supported; use false or leave it out", "false")
