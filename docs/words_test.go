package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
)

// wordList is testdata/words.yaml.
type wordList struct {
	Pending  []string
	MaxLines int `yaml:"maxLines"`
	MaxWords int `yaml:"maxWords"`
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

// piece is a text, and where its first line is.
type piece struct {
	file string
	line int
	text string
}

// TestWords checks every text that a user or a developer reads against testdata/words.yaml.
func TestWords(t *testing.T) {
	list := readWords(t)
	source := readSource(t)
	for _, scope := range []struct {
		name     string
		findings []string
	}{
		{"pages", list.check(prose(t))},
		{"limits", list.limits(t)},
		{"help", list.check(source.help)},
		{"errors", list.check(source.errors)},
		{"logs", list.check(source.logs)},
		{"comments", append(list.check(source.comments), source.unnamed...)},
		{"names", list.names(source.files)},
	} {
		t.Run(scope.name, func(t *testing.T) {
			report := t.Error
			if slices.Contains(list.Pending, scope.name) {
				report = t.Log
			}
			for _, f := range scope.findings {
				report(f)
			}
			t.Logf("%d findings", len(scope.findings))
		})
	}
}

// TestWordList checks that each word is found, and its allowed phrases are not.
func TestWordList(t *testing.T) {
	list := readWords(t)
	for text, want := range map[string]int{
		"The shim logs the cause.":                        0,
		"A name with hasty-heedless parts.":               0,
		"It tells\nthe kubelet.":                          1,
		"The letters ID stands for the container.":        0,
		"The cluster stands.":                             1,
		"It runs once\n\tmore, of its own.":               2,
		"The guest is to be told.":                        2,
		"The node takes it back; nobody\nlooks.":          2,
		"A pause. Who pays for it?":                       1,
		"Who pays for it":                                 1,
		"- That of the pod":                               1,
		"Ask the person\nWho wrote it, by libvirt's hand": 1,
	} {
		if got := list.check([]piece{{"text", 1, text}}); len(got) != want {
			t.Errorf("%q: %d findings, want %d: %v", text, len(got), want, got)
		}
	}
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
	inWord    = regexp.MustCompile(`\S*[\p{L}\p{N}]\S*`) // what tables are drawn with is no word
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

// limits finds pages that are too long, alone and together.
func (l wordList) limits(t *testing.T) []string {
	t.Helper()
	var found []string
	words := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		words += len(inWord.FindAll(text, -1))
		if n := strings.Count(string(generated.ReplaceAll(text, nil)), "\n"); n > l.MaxLines {
			found = append(found, fmt.Sprintf("%s: %d lines by hand; at most %d", page, n, l.MaxLines))
		}
	}
	if words > l.MaxWords {
		found = append(found, fmt.Sprintf("%d words in all pages; at most %d", words, l.MaxWords))
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

// source is what Go files say. Strings of less than two words are left out.
type source struct {
	files                        []string
	help, errors, logs, comments []piece
	unnamed                      []string // exported declarations whose comment begins with another word
}

// readSource reads the checkout's Go files. Strings below cmd are help if they are neither errors nor
// log messages; strings elsewhere are, if not logged, for errors, conditions and events.
func readSource(t *testing.T) *source {
	t.Helper()
	s := &source{}
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "bin" || e.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go":
			s.files = append(s.files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	positions := token.NewFileSet()
	for _, path := range s.files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(positions, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s.read(positions, path, file)
	}
	return s
}

func (s *source) read(positions *token.FileSet, path string, file *ast.File) {
	for _, c := range file.Comments {
		s.comments = append(s.comments, piece{path, positions.Position(c.Pos()).Line, c.Text()})
	}
	s.checkNames(positions, path, file)
	rest := &s.errors
	if strings.HasPrefix(path, filepath.Join("..", "cmd")) {
		rest = &s.help
	}
	into := map[ast.Node]*[]piece{} // calls' arguments, by what they are for
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.CallExpr:
			if kind := s.kind(n); kind != nil {
				for _, arg := range n.Args {
					into[arg] = kind
				}
			}
		case *ast.BinaryExpr: // parts of a string
			if kind := into[n]; kind != nil {
				into[n.X], into[n.Y] = kind, kind
			}
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind != token.STRING || err != nil || len(strings.Fields(text)) < 2 {
				return true
			}
			kind := into[n]
			if kind == nil {
				kind = rest
			}
			*kind = append(*kind, piece{path, positions.Position(n.Pos()).Line, text})
		}
		return true
	})
}

// kind is what a call's strings are for: nil if its name does not say.
func (s *source) kind(call *ast.CallExpr) *[]piece {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	on, _ := f.X.(*ast.Ident)
	switch f.Sel.Name {
	case "Debug", "Info", "Warn", "DebugContext", "InfoContext", "WarnContext", "ErrorContext", "LogAttrs":
		return &s.logs
	case "Error":
		if on == nil || on.Name != "status" && on.Name != "http" {
			return &s.logs
		}
		return &s.errors
	case "Errorf":
		return &s.errors
	case "New":
		if on != nil && on.Name == "errors" {
			return &s.errors
		}
	}
	return nil
}

// checkNames finds comments of exported declarations that begin with another word than the name.
func (s *source) checkNames(positions *token.FileSet, path string, file *ast.File) {
	check := func(name *ast.Ident, doc *ast.CommentGroup) {
		if !name.IsExported() || doc == nil {
			return
		}
		text := doc.Text()
		for _, article := range []string{"A ", "An ", "The "} {
			text = strings.TrimPrefix(text, article)
		}
		if text != "" && !strings.HasPrefix(text, name.Name) {
			s.unnamed = append(s.unnamed, fmt.Sprintf("%s:%d: the comment of %s: begin with the name",
				path, positions.Position(doc.Pos()).Line, name.Name))
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			check(d.Name, d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					doc := spec.Doc
					if doc == nil && !d.Lparen.IsValid() {
						doc = d.Doc
					}
					check(spec.Name, doc)
				}
			}
		}
	}
}
