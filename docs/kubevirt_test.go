package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sameField makes paths comparable: of a VM's template and of an instance, of each element of a list.
var sameField = regexp.MustCompile(`^spec\.template\.(spec|metadata)|\[[0-9]+\]`)

func comparable(said string) string {
	return sameField.ReplaceAllStringFunc(said, func(s string) string {
		if s[0] == '[' {
			return "[]"
		}
		return strings.TrimPrefix(strings.TrimPrefix(s, "spec.template."), ".")
	})
}

// TestKubeVirtsExamples: what kubevirt-examples.md says that admission refuses, it refuses in a manifest of
// controller/admission's tests, in those words. The
// page is written by a test that needs KubeVirt's folder.
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
		t.Error("the page says nothing of what is refused")
	}
	for _, s := range said {
		if !refused[comparable(s[1])] {
			t.Errorf("no manifest in controller/admission/testdata/refused is refused with %q", s[1])
		}
	}
}

// TestKubeVirtsExamplesTable: of what does not run, and of nothing else, the list below the table says why.
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
		told := regexp.MustCompile(`\s` + regexp.QuoteMeta(file) + `(,|\n)`).MatchString(list)
		switch outcome {
		case "runs", "taken":
			if told {
				t.Errorf("%s: %s, and the list tells why not", file, outcome)
			}
		case "refused", "no such kind here":
			if !told {
				t.Errorf("%s: %s, and nothing tells why", file, outcome)
			}
		default:
			t.Errorf("%s: %s; want it to run or to be refused", file, outcome)
		}
	}
}
