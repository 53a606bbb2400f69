package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
)

// wordList is testdata/words.yaml.
type wordList struct {
	MaxLines int `yaml:"maxLines"`
	Words    []*word
	Openings []*word
	Names    []string
}

// word is an expression that the project avoids.
type word struct {
	Avoid, Write string
	Allow        []string
	find, allow  *regexp.Regexp
}

func readWords(t *testing.T) wordList {
	t.Helper()
	text, err := os.ReadFile("testdata/words.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list wordList
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		t.Fatal(err)
	}
	for _, w := range list.Words {
		w.find = regexp.MustCompile(`\b(?:` + anySpace(w.Avoid) + `)\b`)
	}
	for _, w := range list.Openings {
		w.find = regexp.MustCompile(`(?:\A|\n[ \t]*\n\s*|[.?!:]\s+|(?:\A|\n)\s*(?:[-*#|]+|\d+\.)\s+|\| +)(?:` +
			anySpace(w.Avoid) + `)\b`)
	}
	for _, w := range slices.Concat(list.Words, list.Openings) {
		phrases := make([]string, len(w.Allow))
		for i, phrase := range w.Allow {
			phrases[i] = anySpace(regexp.QuoteMeta(phrase))
		}
		if len(phrases) > 0 {
			w.allow = regexp.MustCompile(strings.Join(phrases, "|"))
		}
	}
	return list
}

// anySpace lets an expression match across the lines of a paragraph or a comment.
func anySpace(expression string) string { return strings.ReplaceAll(expression, " ", `\s+`) }

// check finds words that should be avoided.
func (l wordList) check(pieces []piece) []string {
	var found []string
	for _, p := range pieces {
		lower := strings.ToLower(p.text)
		if len(lower) != len(p.text) { // a character whose lower case is of another length
			lower = p.text
		}
		for _, w := range l.Words {
			found = append(found, w.in(p, lower)...)
		}
		for _, w := range l.Openings {
			found = append(found, w.in(p, p.text)...)
		}
	}
	return found
}

func (w *word) in(p piece, text string) []string {
	if w.allow != nil {
		text = w.allow.ReplaceAllStringFunc(text, blank)
	}
	var found []string
	for _, at := range w.find.FindAllStringIndex(text, -1) {
		line := p.line + strings.Count(text[:at[1]], "\n")
		said := strings.Join(strings.Fields(p.text[at[0]:at[1]]), " ")
		found = append(found, fmt.Sprintf("%s:%d: %q: %s", p.file, line, said, w.Write))
	}
	return found
}

// blank returns spaces and the text's line ends, as many bytes as the text has.
func blank(text string) string {
	b := []byte(text)
	for i, c := range b {
		if c != '\n' {
			b[i] = ' '
		}
	}
	return string(b)
}

var (
	generated = regexp.MustCompile(`(?ms)^<!-- [^\n]*: begin.*?^<!-- [^\n]*: end -->$`)
	notProse  = regexp.MustCompile("(?s)<!--.*?-->|`[^`]+`|\\]\\([^)]+\\)")
)

// prose is the text of the pages, without code, links' targets and what is generated.
func prose(t *testing.T) []piece {
	t.Helper()
	var all []piece
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		said := string(text)
		for _, without := range []*regexp.Regexp{generated, fence, notProse} {
			said = without.ReplaceAllStringFunc(said, blank)
		}
		all = append(all, piece{page, 1, said})
	}
	return all
}

// limits finds pages that are too long. Only what is written by hand counts: generated tables grow with the
// product, and the changelog with each release.
func (l wordList) limits(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text = generated.ReplaceAll(text, nil)
		if filepath.Base(page) == "CHANGELOG.md" {
			continue // it grows with each change
		}
		if n := strings.Count(string(text), "\n"); n > l.MaxLines {
			found = append(found, fmt.Sprintf("%s: %d lines by hand; at most %d", page, n, l.MaxLines))
		}
	}
	return found
}

// names finds Go files whose names do not name what is in them.
func (l wordList) names(files []string) []string {
	var found []string
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".go"), "_test")
		if slices.Contains(l.Names, name) {
			found = append(found, file+": name the file after what is in it")
		}
	}
	return found
}
