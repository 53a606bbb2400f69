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
)

// source is what the checkout's Go files, scripts and settings say. Strings of less than two words are
// left out.
type source struct {
	files                        []string
	help, errors, logs, comments []piece
	unnamed                      []string // exported declarations whose comment begins with another word
}

// readSource reads the checkout. Strings below cmd are help if they are neither errors nor log messages;
// strings elsewhere are, if not logged, for errors, conditions and events. The help of a Makefile follows
// "##". Of a test's strings, it reads those of failures.
func readSource(t *testing.T) *source {
	t.Helper()
	s := &source{}
	positions := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "bin" || e.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go":
			s.files = append(s.files, path)
			file, err := parser.ParseFile(positions, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil || ast.IsGenerated(file) {
				return err
			}
			s.read(positions, path, file)
			return nil
		case e.Type().IsRegular() && !slices.Contains([]string{".md", ".json", ".sum"}, filepath.Ext(path)):
			return s.readSettings(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	hashComments = regexp.MustCompile(`(?m)(?:^[ \t]*#.*\n?)+|[ \t]#[ \t].*$`)
	targetHelp   = regexp.MustCompile(`(?m)[ \t]##[ \t].*$`)
)

// readSettings reads the comments of a script, a Makefile or a YAML file.
func (s *source) readSettings(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(raw)
	add := func(expression *regexp.Regexp, to *[]piece) {
		for _, at := range expression.FindAllStringIndex(text, -1) {
			comment := strings.ReplaceAll(text[at[0]:at[1]], "#", " ")
			*to = append(*to, piece{path, 1 + strings.Count(text[:at[0]], "\n"), comment})
		}
	}
	add(hashComments, &s.comments)
	add(targetHelp, &s.help)
	return nil
}

func (s *source) read(positions *token.FileSet, path string, file *ast.File) {
	for _, c := range file.Comments {
		s.comments = append(s.comments, piece{path, positions.Position(c.Pos()).Line, c.Text()})
	}
	rest := &s.errors
	test := strings.HasSuffix(path, "_test.go")
	if !test {
		s.checkNames(positions, path, file)
	}
	switch {
	case test:
		rest = &[]piece{}
	case strings.HasPrefix(path, filepath.Join("..", "cmd")):
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
	case "Errorf", "Fatal", "Fatalf":
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
