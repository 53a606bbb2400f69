// Package docs_test checks the project's pages, and the words in its code, against the tree.
package docs_test

import (
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodevirt/nodevirt/shim/config"
)

// maxWidth is the largest length of a page's line, in characters.
const maxWidth = 100

// pages returns the paths of the checkout's Markdown files.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			all = append(all, path)
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("no pages found: %v", err)
	}
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinks follows each relative link, to its file and to its heading.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, l := range link.FindAllStringSubmatch(withoutCode(t, page), -1) {
			target, err := url.Parse(l[1])
			if err != nil {
				t.Errorf("%s: link %s: %v", page, l[1], err)
				continue
			}
			if target.Scheme != "" {
				continue
			}
			file := page
			if target.Path != "" {
				file = filepath.Join(filepath.Dir(page), target.Path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link %s: %v", page, l[1], err)
				continue
			}
			if target.Fragment != "" && !anchors(t, file)[target.Fragment] {
				t.Errorf("%s: link %s: no such heading in %s", page, l[1], file)
			}
		}
	}
}

func withoutCode(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return fence.ReplaceAllString(string(text), "")
}

// anchors returns the names by which GitHub links to a page's headings.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	names := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(withoutCode(t, page), -1) {
		name := drop.ReplaceAllString(strings.ToLower(h[1]), "")
		names[strings.ReplaceAll(name, " ", "-")] = true
	}
	return names
}

// TestWidth keeps pages readable in a terminal.
func TestWidth(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			if strings.HasPrefix(line, "|") {
				continue // a row of a table is one line
			}
			if w := utf8.RuneCountInString(strings.TrimRight(line, "\n")); w > maxWidth {
				t.Errorf("%s:%d: %d characters; at most %d", page, n, w, maxWidth)
			}
		}
	}
}

// TestConfig checks that config.md has a row for each field, with its default, and for each flag.
func TestConfig(t *testing.T) {
	text, err := os.ReadFile("config.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, f := range fields("", reflect.ValueOf(config.Default())) {
		rows++
		if row := fmt.Sprintf("| `%s` | %s |", f[0], f[1]); !strings.Contains(string(text), row) {
			t.Errorf("config.md has no row that begins with: %s", row)
		}
	}
	help, err := os.ReadFile("../cmd/nodevirt-shim/testdata/help.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range regexp.MustCompile(`(?m)^  (-[a-z-]+)`).FindAllSubmatch(help, -1) {
		rows++
		if !regexp.MustCompile("(?m)^\\| `" + string(f[1]) + "[ `]").Match(text) {
			t.Errorf("config.md has no row for flag %s", f[1])
		}
	}
	if have := strings.Count(string(text), "\n| `"); have != rows {
		t.Errorf("config.md has %d rows, want one for each of %d fields and flags", have, rows)
	}
}

// fields returns the names of a config's fields in its file, with their values as the page writes them.
func fields(prefix string, v reflect.Value) [][2]string {
	var all [][2]string
	for field, value := range v.Fields() {
		name := prefix + field.Tag.Get("toml")
		switch x := value.Interface().(type) {
		case config.Quantity:
			all = append(all, [2]string{name, fmt.Sprintf("`%q`", resource.NewQuantity(int64(x), resource.BinarySI))})
		case fmt.Stringer: // the log level, durations
			all = append(all, [2]string{name, fmt.Sprintf("`%q`", strings.ToLower(x.String()))})
		case string:
			all = append(all, [2]string{name, fmt.Sprintf("`%q`", x)})
		case uint32:
			all = append(all, [2]string{name, fmt.Sprintf("`%d`", x)})
		case float64:
			all = append(all, [2]string{name, fmt.Sprintf("`%.1f`", x)})
		case map[string]string:
			var pairs []string
			for _, key := range slices.Sorted(maps.Keys(x)) {
				pairs = append(pairs, fmt.Sprintf("%s = %q", key, x[key]))
			}
			all = append(all, [2]string{name, "`{ " + strings.Join(pairs, ", ") + " }`"})
		case []netip.Prefix:
			all = append(all, [2]string{name, fmt.Sprintf("`%v`", x)})
		case bool:
			all = append(all, [2]string{name, fmt.Sprintf("`%t`", x)})
		default:
			all = append(all, fields(name+".", value)...)
		}
	}
	return all
}
