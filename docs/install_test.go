package docs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v2"
)

// TestRoles compares the tables of install.md with the roles of the controller and the installer.
func TestRoles(t *testing.T) {
	var text []byte
	for _, file := range []string{"../deploy/kubernetes/rbac.yaml", "../deploy/installer/rbac.yaml"} {
		part, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "---\n"...), part...)
	}
	var want []string
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var role struct {
			Rules []struct{ Resources, Verbs []string }
		}
		if err := d.Decode(&role); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			row := fmt.Sprintf("| `%s` | %s |", strings.Join(r.Resources, "`, `"), strings.Join(r.Verbs, ", "))
			want = append(want, row)
		}
	}
	page, err := os.ReadFile("install.md")
	if err != nil {
		t.Fatal(err)
	}
	have := regexp.MustCompile("(?m)^\\| `[^|]* \\| (?:get|list|create|update|patch|delete)[^|]* \\|").FindAllString(string(page), -1)
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("install.md is out of date (-rbac.yaml +page):\n%s", diff)
	}
}
