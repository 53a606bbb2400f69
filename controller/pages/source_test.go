package pages_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestListsHaveLimits: each list that the controller's source reads past the cache is in pages, or has a limit.
func TestListsHaveLimits(t *testing.T) {
	list := regexp.MustCompile(`(?s)\b[\w.]*(?i:live|uncached)\.List\((.*?)\); err|\b[\w.]*(?i:live|uncached)\.List\((.*?)\)\n`)
	found := 0
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, call := range list.FindAllString(string(text), -1) {
			found++
			if !strings.Contains(call, "client.Limit(") && !strings.HasSuffix(path, "pages/pages.go") {
				t.Errorf("%s: use pages.Each, or a limit: %s", path, call)
			}
		}
		return nil
	})
	if err != nil || found < 4 {
		t.Errorf("found %d lists, %v", found, err)
	}
}
