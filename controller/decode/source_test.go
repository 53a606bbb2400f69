package decode_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// decoders are the functions that decode JSON or a tree without a bound of elements.
func decoders() []string {
	return []string{
		"json.Unmarshal", "json.NewDecoder", "kjson.UnmarshalCaseSensitivePreserveInts", "jsonpatch.DecodePatch",
		"yaml.Unmarshal", "runtime.DefaultUnstructuredConverter.FromUnstructured",
	}
}

// TestDecoders enumerates the controller's decoders that have no bound of elements, with the reason why they need none. Users'
// JSON is decoded by this package.
func TestDecoders(t *testing.T) {
	const node = "an answer of a node, of bounded size"
	want := map[string]string{
		"decode/decode.go: json.Unmarshal":                                             "this package",
		"admission/presets.go: json.Unmarshal":                                         "a part of a reviewed object",
		"admission/review.go: json.Unmarshal":                                          "a reviewed object, whose elements were counted before",
		"admission/review.go: kjson.UnmarshalCaseSensitivePreserveInts":                "into a tree, whose elements are small",
		"admission/serve.go: json.NewDecoder":                                          "the first bytes of a review",
		"manifest/kubernetes.go: kjson.UnmarshalCaseSensitivePreserveInts":             "a part of a reviewed object",
		"restore/manifest.go: jsonpatch.DecodePatch":                                   "elements are counted before",
		"pod/revision.go: json.NewDecoder":                                             "what the controller encoded",
		"pod/cards.go: json.Unmarshal":                                                 "an annotation of the controller",
		"export/links.go: json.Unmarshal":                                              "an annotation of the controller",
		"export/server/config.go: json.Unmarshal":                                      "files of the controller, in an export's pod",
		"export/push/keychain.go: json.Unmarshal":                                      "a Secret, in an export's pod",
		"export/push/result.go: json.Unmarshal":                                        "the message of an ended container, which the kubelet bounds",
		"vmi/nodeguests.go: json.Unmarshal":                                            node,
		"hotplug/cards.go: json.Unmarshal":                                             node,
		"hotplug/links.go: json.Unmarshal":                                             node,
		"hotplug/orders.go: json.Unmarshal":                                            node,
		"hotplug/dump.go: json.Unmarshal":                                              node,
		"migration/orders.go: json.Unmarshal":                                          node,
		"memory/memory.go: json.Unmarshal":                                             node,
		"backup/work.go: json.Unmarshal":                                               node,
		"datavolume/create.go: runtime.DefaultUnstructuredConverter.FromUnstructured":  "an object of CDI, whose lists have small elements",
		"instancetype/infer.go: runtime.DefaultUnstructuredConverter.FromUnstructured": "an object of CDI, whose lists have small elements",
	}
	have := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is {
				if name := selected(call.Fun); slices.Contains(decoders(), name) {
					have[strings.TrimPrefix(path, "../")+": "+name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have))); diff != "" {
		t.Errorf("use decode.JSON for what users write, and say here why another decoder needs no bound: (-table +source)\n%s", diff)
	}
}

// selected returns the text of an expression such as json.Unmarshal.
func selected(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return selected(e.X) + "." + e.Sel.Name
	}
	return ""
}
