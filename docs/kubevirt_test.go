package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sameField matches what differs between the path of a field in a VM's template and in an instance, and
// between the elements of a list.
var sameField = regexp.MustCompile(`^spec\.template\.(spec|metadata)|\[[0-9]+\]`)

func comparable(said string) string {
	return sameField.ReplaceAllStringFunc(said, func(s string) string {
		if s[0] == '[' {
			return "[]"
		}
		return strings.TrimPrefix(strings.TrimPrefix(s, "spec.template."), ".")
	})
}

// TestKubeVirtsExamples wants a refused manifest in controller/admission's tests for each reason on
// kubevirt-examples.md, in the same words. A test that needs KubeVirt's folder writes the page.
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
		t.Error("the page lists no reason of a refusal")
	}
	for _, s := range said {
		if !refused[comparable(s[1])] {
			t.Errorf("no manifest in controller/admission/testdata/refused is refused with %q", s[1])
		}
	}
}

// TestKubeVirtsExamplesSections wants every manifest to run, to be accepted or to have a reason, and none
// in two sections.
func TestKubeVirtsExamplesSections(t *testing.T) {
	page, err := os.ReadFile("kubevirt-examples.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{} // of the manifests that the cluster accepted
	count := map[string]int{}
	_, lists, _ := strings.Cut(string(page), "## Runs\n")
	accepted, refused, _ := strings.Cut("## Runs\n"+lists, "## Refused\n")
	section := ""
	for line := range strings.Lines(accepted) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
			if section != "Runs" && section != "Accepted" {
				t.Errorf("section %q: want each VM to run or to be refused", section)
			}
		}
		if m := regexp.MustCompile("^- `([^`]*)` \\(\\w+\\)$").FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			if other := sections[m[1]]; other != "" {
				t.Errorf("%s: in sections %s and %s", m[1], other, section)
			}
			sections[m[1]] = section
			count[section]++
		}
	}
	if count["Runs"] == 0 || count["Accepted"] == 0 {
		t.Errorf("empty section: %v", count)
	}
	reasons := regexp.MustCompile(`[a-z0-9-]+\.yaml`).FindAllString(refused, -1)
	if len(reasons) == 0 {
		t.Error("the page lists no reason")
	}
	for _, file := range reasons {
		if section := sections[file]; section != "" {
			t.Errorf("%s: in section %s, but also refused", file, section)
		}
	}
}
