package imports_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/test/imports"
)

const module = "github.com/nodevirt/nodevirt/"

// TestOrder holds the module's packages against the order. Tests may import what
// they like.
func TestOrder(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var all []imports.Package
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimPrefix(p.ImportPath, module)
		if path == "docs" || strings.HasPrefix(path, "test/") {
			continue
		}
		one := imports.Package{Path: path}
		for _, i := range p.Imports {
			if of, ours := strings.CutPrefix(i, module); ours {
				one.Imports = append(one.Imports, of)
			}
		}
		all = append(all, one)
	}
	if len(all) < 40 {
		t.Fatalf("only %d packages were found", len(all))
	}
	for _, problem := range imports.Check(all) {
		t.Error(problem)
	}
}

// TestCheck: the check finds every kind of forbidden import.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		from, to, want string
	}{
		{"cmd/nodevirt/internal/vms", "shim/vmspec", ""},
		{"cmd/nodevirt", "cmd/nodevirt/internal/vms", ""},
		{"shim/vm/lifecycle", "shim/vm/table", ""},
		{"shim/vm/table", "shim/vm/lifecycle", "an arrow up"},
		{"shim/cri", "shim/vm", ""},
		{"controller/vm", "shim/vmspec", ""},
		{"shim/vmspec", "controller/manifest", "an arrow up"},
		{"shim/disk", "shim/vm/table", "an arrow up"},
		{"shim/vm", "shim/cri", "an arrow up"},
		{"shim/fields", "shim/podstatus/condition", "an arrow up"},
		{"netsetup", "shim/supervise", ""},
		{"controller/vm", "controller/replicaset", "an arrow up"},
		{"controller/vm", "shim/record", "the cluster's half"},
		{"imageunpack/persist", "shim/fields", "imageunpack is a library"},
		{"shim", "test/node", "for tests"},
		{"shim/unheard", "shim/fields", "no layer has this package"},
	} {
		got := imports.Check([]imports.Package{{Path: tt.from, Imports: []string{tt.to}}})
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s imports %s: %s", tt.from, tt.to, cmp.Diff(tt.want, strings.Join(got, "\n")))
		}
	}
}
