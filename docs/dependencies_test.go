package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goMod is the part of `go mod edit -json` that these tests need.
type goMod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Tool []struct{ Path string }
}

func readGoMod(t *testing.T, path string) goMod {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", path)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var m goMod
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return m
}

// TestDependencies compares the page's two lists with go.mod's direct requirements and with the tools
// of the modules below test/tools.
func TestDependencies(t *testing.T) {
	text, err := os.ReadFile("dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^- `([^`]+)`").FindAllSubmatch(text, -1) {
		listed = append(listed, string(row[1]))
	}
	var want []string
	for _, r := range readGoMod(t, "../go.mod").Require {
		if !r.Indirect {
			want = append(want, r.Path)
		}
	}
	modules, err := filepath.Glob("../test/tools/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("no tool modules found: %v", err)
	}
	for _, m := range modules {
		for _, tool := range readGoMod(t, m).Tool {
			want = append(want, tool.Path)
		}
	}
	slices.Sort(listed)
	slices.Sort(want)
	want = slices.Compact(want) // two modules may have the same tool
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("dependencies.md is out of date (-go.mod +page):\n%s", diff)
	}
}
