package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	code       = regexp.MustCompile("(?ms)^ *```sh\n.*?^ *```$|`[^`\n]+`")
	makeTarget = regexp.MustCompile("(?m)(?:^|`|&& | )make ([a-z][a-z -]*[a-z])")
	nodevirt   = regexp.MustCompile("(?m)(?:^ *|`|[|] ?)(?:bin/)?nodevirt ([a-z][^|`#\n]*)")
	longFlag   = regexp.MustCompile(`\s--([a-z-]+)`)
)

// TestCommands checks that the make targets, nodevirt commands and their flags in the pages exist.
func TestCommands(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	said := stringsBelow(t, "../cmd/nodevirt")
	commands := map[string]bool{"help": true, "completion": true} // cobra's own
	for s := range said {
		name, _, _ := strings.Cut(s, " ")
		commands[name] = true
	}
	found := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range code.FindAllString(string(text), -1) {
			c = strings.ReplaceAll(c, "\\\n", " ")
			for _, m := range makeTarget.FindAllStringSubmatch(c, -1) {
				for target := range strings.FieldsSeq(m[1]) {
					found++
					if !regexp.MustCompile(`(?m)^` + target + `:`).Match(makefile) {
						t.Errorf("%s: make %s: no such target", page, target)
					}
				}
			}
			for _, m := range nodevirt.FindAllStringSubmatch(c, -1) {
				found++
				words := strings.Fields(m[1])
				if !commands[words[0]] {
					t.Errorf("%s: nodevirt %s: no such command", page, words[0])
				}
				for _, f := range longFlag.FindAllStringSubmatch(m[1], -1) {
					if !said[f[1]] {
						t.Errorf("%s: nodevirt %s: no flag --%s", page, words[0], f[1])
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("the pages have no commands")
	}
}

// stringsBelow returns the string literals of the Go files below a folder.
func stringsBelow(t *testing.T, folder string) map[string]bool {
	t.Helper()
	said := map[string]bool{}
	err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					said[s] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// deletion matches a command that deletes manifests, and what it deletes.
var deletion = regexp.MustCompile(`kubectl delete (?:-[a-z]\S* )*-[fk] (\S+)`)

// TestDeletions: only below a warning, the pages delete manifests that have CRDs: all their objects go with them. By
// the operation "without the controller" no VM is lost.
func TestDeletions(t *testing.T) {
	found := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range deletion.FindAllSubmatchIndex(text, -1) {
			found++
			path := strings.Trim(string(text[at[2]:at[3]]), "`.,")
			if strings.HasPrefix(path, "my-nodevirt") {
				path = "deploy" // the pages' overlay of it
			}
			section := string(text[:at[0]])
			section = section[max(strings.LastIndex(section, "\n## "), 0):]
			if hasCRD(t, strings.TrimPrefix(path, "nodevirt/")) && !strings.Contains(section, "**Warning:**") {
				t.Errorf("%s: %s deletes CRDs, and with them every VM, without a warning before it", page, text[at[0]:at[1]])
			}
		}
	}
	if found < 3 {
		t.Errorf("the pages delete manifests %d times", found)
	}
}

// listedCRDs matches a line of a kustomization.
var listedCRDs = regexp.MustCompile(`(?m)^ *- .*crds`)

// hasCRD reports whether a file, or a file below a folder, of the repository has a CRD. A kustomization has what it lists.
func hasCRD(t *testing.T, path string) bool {
	t.Helper()
	has := false
	// Commands run in the repository's folder, or in that of the example.
	for _, base := range []string{"..", "../examples", "../examples/kubernetes-on-kubernetes"} {
		root := filepath.Join(base, path)
		if _, err := os.Stat(root); err != nil {
			continue
		}
		if list, err := os.ReadFile(filepath.Join(root, "kustomization.yaml")); err == nil {
			has = has || listedCRDs.Match(list)
			continue
		}
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			has = has || strings.Contains(string(text), "kind: CustomResourceDefinition")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return has
}
