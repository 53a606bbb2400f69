package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sameField matches what differs between equal fields: the template of a VM, and indexes of lists.
var sameField = regexp.MustCompile(`^spec\.template\.(spec|metadata)|\[[0-9]+\]`)

func comparable(said string) string {
	return sameField.ReplaceAllStringFunc(said, func(s string) string {
		if s[0] == '[' {
			return "[]"
		}
		return strings.TrimPrefix(strings.TrimPrefix(s, "spec.template."), ".")
	})
}

// TestKubeVirtsExamples checks that each refusal in kubevirt-examples.md is one of a manifest in
// controller/admission's tests. A test that needs KubeVirt's manifests writes the page.
func TestKubeVirtsExamples(t *testing.T) {
	manifests, err := filepath.Glob("../controller/admission/testdata/refused/*.yaml")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	refused := map[string]bool{}
	for _, file := range manifests {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if said, ok := strings.CutPrefix(line, "#: "); ok {
				refused[comparable(strings.TrimSpace(said))] = true
			}
		}
	}
	page, err := os.ReadFile("kubevirt-examples.md")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile("(?m)^- `((?:spec|metadata)[.\\[][^`]*)`").FindAllStringSubmatch(strings.ReplaceAll(string(page), "\n  ", " "), -1)
	if len(said) == 0 {
		t.Error("the page has no refusals")
	}
	for _, s := range said {
		if !refused[comparable(s[1])] {
			t.Errorf("no manifest in controller/admission/testdata/refused is refused with %q", s[1])
		}
	}
}

// TestKubeVirtsExamplesTable checks that the list below the table has the cause of each manifest that
// does not run, and of no other.
func TestKubeVirtsExamplesTable(t *testing.T) {
	page, err := os.ReadFile("kubevirt-examples.md")
	if err != nil {
		t.Fatal(err)
	}
	table, list, _ := strings.Cut(string(page), "\n\n- ")
	rows := regexp.MustCompile("(?m)^\\| `([^`]*)` \\| \\w+ \\| (.*) \\|$").FindAllStringSubmatch(table, -1)
	if len(rows) == 0 {
		t.Error("the page has no table")
	}
	for _, row := range rows {
		file, outcome := row[1], row[2]
		explained := regexp.MustCompile(`\s` + regexp.QuoteMeta(file) + `(,|\n)`).MatchString(list)
		switch outcome {
		case "runs", "taken":
			if explained {
				t.Errorf("%s: %s, and the list says why not", file, outcome)
			}
		case "refused", "no such kind here":
			if !explained {
				t.Errorf("%s: %s, and the list does not say why", file, outcome)
			}
		default:
			t.Errorf("%s: %s; want it to run or to be refused", file, outcome)
		}
	}
}
