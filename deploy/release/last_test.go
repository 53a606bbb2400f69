package release_test

import (
	"os"
	"regexp"
	"testing"
)

// TestLast: last names the newest release of the changelog, and the commit from which make test-upgrade
// builds it. A clone may have no tags.
func TestLast(t *testing.T) {
	last, err := os.ReadFile("last")
	if err != nil {
		t.Fatal(err)
	}
	parts := regexp.MustCompile(`^v(\S+) [0-9a-f]{40}\n$`).FindSubmatch(last)
	if parts == nil {
		t.Fatalf("last is %q; want a tag and its commit", last)
	}
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## \[(\d\S*)\] - `).FindSubmatch(changelog)
	if newest == nil || string(newest[1]) != string(parts[1]) {
		t.Errorf("last names version %s, and the changelog's newest release is %q", parts[1], newest)
	}
}
