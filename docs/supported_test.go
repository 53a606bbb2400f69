package docs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/nodevirt/nodevirt/controller/kinds"
	fieldtable "github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/fields/fieldstest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// list is one of the lists of supported fields in the docs.
type list struct {
	name   string
	fields fieldtable.Supported
	sorted bool // and not in the order of the code
	// check finds the problems of a decoded spec.
	check func(at *field.Path, tree any) field.ErrorList
}

// node checks a spec as a node does.
func node(_ *field.Path, tree any) field.ErrorList {
	text, err := json.Marshal(tree)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	_, problems := vmspec.DecodeVMI(text)
	return problems
}

// lists returns the list of what a node reads, and those of the controller's kinds.
func lists() []list {
	all := []list{{"supported", vmspec.Supported(), false, node}}
	for _, k := range kinds.All() {
		for _, l := range k.Fields {
			all = append(all, list{l.Name, l.Fields, true, l.Check})
		}
	}
	return all
}

// TestSupported holds the pages' lists of supported fields against the code. With
// -update it writes what is between a list's marks, which may be on any page.
func TestSupported(t *testing.T) {
	for _, l := range lists() {
		marks := regexp.MustCompile(`(?s)(<!-- ` + l.name + `: begin[^>]*-->\n)(.*?)(<!-- ` + l.name + `: end -->\n)`)
		found := false
		for _, page := range pages(t) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			at := marks.FindSubmatchIndex(text)
			if at == nil {
				continue
			}
			found = true
			want, have := "\n```text\n"+l.tree(t)+"```\n\n", string(text[at[4]:at[5]])
			if golden.FlagUpdate() && want != have {
				text = slices.Concat(text[:at[4]], []byte(want), text[at[5]:])
				if err := os.WriteFile(page, text, 0o644); err != nil {
					t.Fatal(err)
				}
				have = want
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("%s is out of date; run with -update: (-code +page)\n%s", page, diff)
			}
		}
		if !found {
			t.Errorf("no page has the marks <!-- %s: begin --> and <!-- %[1]s: end --> around the list", l.name)
		}
	}
}

// TestDocsOfAnnotations: the page of pods documents each annotation.
func TestDocsOfAnnotations(t *testing.T) {
	text, err := os.ReadFile("pod.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range vmspec.Annotations() {
		if !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("docs/pod.md does not document annotation %s", key)
		}
	}
}

// Where the second column of the list begins, and where it ends.
const (
	valueColumn = 30
	lastColumn  = 100
)

// tree lists the supported fields, each below the object that it is in, with what it takes. An
// object with one field is in the field's line.
func (l list) tree(t *testing.T) string {
	paths := l.fields.Paths("")
	if l.sorted {
		slices.Sort(paths)
	}
	taken := map[string]string{}
	for _, path := range paths {
		taken[path] = l.taken(t, "spec."+path)
	}
	return level("", "", paths, taken, map[string]string{})
}

// level lists the fields below a path. Said are the lists of objects that are above, by their text.
func level(indent, at string, paths []string, taken, said map[string]string) string {
	var b strings.Builder
	for len(paths) > 0 {
		name, _, isObject := strings.Cut(strings.TrimPrefix(paths[0], at), ".")
		end := slices.IndexFunc(paths, func(p string) bool { return p != at+name && !strings.HasPrefix(p, at+name+".") })
		if end < 0 {
			end = len(paths)
		}
		switch below := paths[:end]; {
		case !isObject:
			b.WriteString(twoColumns(indent+name, taken[paths[0]]))
			below = below[1:]
			if len(below) > 0 { // it takes an object, whose fields follow
				b.WriteString(level(indent+"  ", at+name+".", below, taken, said))
			}
		case end == 1:
			b.WriteString(twoColumns(indent+strings.TrimPrefix(paths[0], at), taken[paths[0]]))
		default:
			text := level("", at+name+".", below, taken, map[string]string{})
			if other := said[text]; other != "" {
				b.WriteString(twoColumns(indent+name, "as "+other))
				break
			}
			said[text] = at + name
			for all := true; all; { // with the objects that have one object alone
				step, _, more := strings.Cut(strings.TrimPrefix(below[0], at+name+"."), ".")
				longer := name + "." + step
				all = more && !slices.ContainsFunc(below, func(p string) bool { return !strings.HasPrefix(p, at+longer+".") })
				if all {
					name = longer
				}
			}
			b.WriteString(indent + name + "\n" + level(indent+"  ", at+name+".", below, taken, said))
		}
		paths = paths[end:]
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

// taken describes the values of a field by the words that refuse all others. Every field refuses
// values of the wrong type; a refusal for another reason says more.
func (l list) taken(t *testing.T, path string) string {
	t.Helper()
	for _, w := range l.fields.Wholes {
		if "spec."+w.Path == path {
			return w.Is
		}
	}
	said := ""
	for _, probe := range []string{
		`[[]]`, `{}`, `false`, `true`, `-1`, `-99999999`, `"!"`, `"\n"`,
		`"` + strings.Repeat("x", 1<<19) + `"`, `[` + strings.Repeat("{},", 999) + `{}]`,
	} {
		for _, p := range l.check(field.NewPath("spec"), decoded(t, fieldstest.JSONAt(strings.TrimPrefix(path, "spec."), probe))) {
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
	return bounded.ReplaceAllString(interval.ReplaceAllString(phrase.Replace(said), "$1…$2"), "$1{1,$2}")
}

// bounded is what a text of some characters takes.
var bounded = regexp.MustCompile(`^(\[[^]]*\])\+, at most ([0-9]+) characters$`)

// interval is what integers take.
var interval = regexp.MustCompile(`from (-?[0-9]+) to ([0-9]+)`)

// decoded decodes JSON as the controller does.
func decoded(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// phrase turns the words of a refusal into those of a description.
var phrase = strings.NewReplacer("must be ", "", "must have ", "", "must match ", "",
	"DNS labels with dots between them, at most 253 characters", "a DNS name",
	"a DNS label: a-z, 0-9 and - inside, at most 63 characters", "a DNS label",
	"an absolute path to a file without relative components", "a file's absolute path",
	" and have ", ", ", "may not be more than ", "at most ", "supported values: ", "",
	"true or false", "boolean", "a quantity such as 500m, 2, 512Mi or 1.5Gi", "quantity", "an object", "object",
	"false: not supported; use true or leave it out", "true",
	"true: not supported; use false or leave it out", "false")
