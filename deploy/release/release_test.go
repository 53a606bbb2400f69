package release_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/deploy/release"
)

const changelog = `# Changelog

## [Unreleased]

- Next.

## [1.2.3] - 2026-01-02

### Added

- A thing.

## [1.2.2]

## [1.2.1]

- Old.
`

func TestNotes(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":      "### Added\n\n- A thing.\n",
		"v1.2.1":      "- Old.\n",
		"v1.3.0-rc.1": "- Next.\n",
	} {
		if got, err := release.Notes(changelog, version); err != nil || got != want {
			t.Errorf("%s: %q, %v, not %q", version, got, err, want)
		}
	}
	for version, want := range map[string]string{
		"v9.9.9": "has no section", "v1.2.2": "is empty", "1.2.3": "want a version such as", "v1.2": "want a version such as",
	} {
		if _, err := release.Notes(changelog, version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, not %q", version, err, want)
		}
	}
}

// TestSBOM describes the program that writes it. A test's own program does not name its modules.
func TestSBOM(t *testing.T) {
	self := filepath.Join(t.TempDir(), "release")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", self, "../cmd/release").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v: %s", err, out)
	}
	text := func() string {
		var b bytes.Buffer
		if err := release.SBOM(&b, "v1.2.3", time.Unix(1, 0), []string{self}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	first := text()
	if first != text() {
		t.Error("two bills of materials of one program differ")
	}
	var bom struct {
		BOMFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal([]byte(first), &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Fatalf("format %q, %v", bom.BOMFormat, err)
	}
	var names []string
	for _, c := range bom.Components {
		names = append(names, c.Name)
		if c.Version == "" || c.Purl == "" && c.Name != filepath.Base(self) {
			t.Errorf("component %+v has no version or package URL", c)
		}
	}
	for _, want := range []string{"std", "github.com/CycloneDX/cyclonedx-go", filepath.Base(self)} {
		if !slices.Contains(names, want) {
			t.Errorf("component %s is missing in %v", want, names)
		}
	}
}

func TestSBOMOfNoProgram(t *testing.T) {
	if err := release.SBOM(new(bytes.Buffer), "v1.2.3", time.Unix(1, 0), []string{"release_test.go"}); err == nil {
		t.Error("a file that is no program gave no error")
	}
}
