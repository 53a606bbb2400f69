package diskguard_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/controller/diskguard"
)

// source is the controller's, without tests.
type source struct {
	files []*ast.File
	// tests are the names of test functions, as PACKAGE.NAME.
	tests map[string]bool
	// pvcs are the names of functions that return PVCs or PersistentVolumes, writers, as PACKAGE.NAME,
	// those that write an object which they are given.
	pvcs, writers map[string]bool
}

func parse(t *testing.T) *source {
	t.Helper()
	s := &source{tests: map[string]bool{}, pvcs: map[string]bool{}, writers: map[string]bool{}}
	set := token.NewFileSet()
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(set, filepath.Join("..", path), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			for _, f := range functions(file) {
				s.tests[strings.TrimSuffix(file.Name.Name, "_test")+"."+f.Name.Name] = true
			}
			return nil
		}
		s.files = append(s.files, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range s.files {
		for _, f := range functions(file) {
			if f.Type.Results != nil && slices.ContainsFunc(f.Type.Results.List, func(r *ast.Field) bool { return isDisk(r.Type) }) {
				s.pvcs[f.Name.Name] = true
			}
			if s.writesObject(file.Name.Name, f) {
				s.writers[file.Name.Name+"."+f.Name.Name] = true
			}
		}
	}
	return s
}

func functions(file *ast.File) (all []*ast.FuncDecl) {
	for _, d := range file.Decls {
		if f, is := d.(*ast.FuncDecl); is && f.Body != nil {
			all = append(all, f)
		}
	}
	return all
}

// isDisk reports whether a type is a PVC or a PersistentVolume, or a list of such.
func isDisk(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isDisk(e.X)
	case *ast.ArrayType:
		return isDisk(e.Elt)
	case *ast.SelectorExpr:
		if e.Sel.Name == "PVCObjects" {
			return true
		}
		from, is := e.X.(*ast.Ident)
		return is && from.Name == "corev1" && slices.Contains([]string{
			"PersistentVolumeClaim", "PersistentVolumeClaimList", "PersistentVolume", "PersistentVolumeList",
		}, e.Sel.Name)
	}
	return false
}

// nameOf returns the last name of a call's function, or of a variable.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// writesObject reports whether a function deletes or patches an object that it gets as a parameter.
func (s *source) writesObject(in string, f *ast.FuncDecl) bool {
	objects := map[string]bool{}
	for _, p := range f.Type.Params.List {
		if sel, is := p.Type.(*ast.SelectorExpr); is && sel.Sel.Name == "Object" {
			for _, n := range p.Names {
				objects[n.Name] = true
			}
		}
	}
	writes := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, is := n.(*ast.CallExpr); is && (isWrite(nameOf(call.Fun)) || s.writers[in+"."+nameOf(call.Fun)]) {
			writes = writes || slices.ContainsFunc(call.Args, func(a ast.Expr) bool { return objects[nameOf(a)] })
		}
		return true
	})
	return writes
}

func isWrite(name string) bool {
	return slices.Contains([]string{"Delete", "DeleteAllOf", "Patch", "Update"}, name)
}

// disksOf returns the names of a function's variables that are PVCs or PersistentVolumes.
func (s *source) disksOf(f *ast.FuncDecl) map[string]bool {
	all := map[string]bool{}
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			all[n.Name] = isDisk(p.Type)
		}
	}
	is := func(e ast.Expr) bool { return s.isDiskValue(e, all) }
	for range 3 { // each uses those before
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					right := n.Rhs[0]
					if len(n.Rhs) == len(n.Lhs) {
						right = n.Rhs[i]
					} else if i > 0 {
						continue
					}
					if name := nameOf(left); name != "" && is(right) {
						all[name] = true
					}
				}
			case *ast.RangeStmt:
				if is(n.X) && n.Value != nil {
					all[nameOf(n.Value)] = true
				}
			case *ast.ValueSpec:
				if n.Type != nil && isDisk(n.Type) {
					for _, name := range n.Names {
						all[name.Name] = true
					}
				}
			}
			return true
		})
	}
	delete(all, "err")
	return all
}

func (s *source) isDiskValue(e ast.Expr, known map[string]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return known[e.Name]
	case *ast.UnaryExpr:
		return s.isDiskValue(e.X, known)
	case *ast.CompositeLit:
		return e.Type != nil && isDisk(e.Type)
	case *ast.IndexExpr:
		return s.isDiskValue(e.X, known)
	case *ast.SelectorExpr: // list.Items
		return e.Sel.Name == "Items" && s.isDiskValue(e.X, known)
	case *ast.CallExpr:
		switch name := nameOf(e.Fun); name {
		case "new":
			return isDisk(e.Args[0])
		case "DeepCopy":
			return s.isDiskValue(e.Fun.(*ast.SelectorExpr).X, known)
		default:
			return s.pvcs[name]
		}
	}
	return false
}

// places returns which functions delete, patch or disown disks, as PLACE VERB.
func (s *source) places() []string {
	found := map[string]bool{}
	for _, file := range s.files {
		for _, f := range functions(file) {
			place := file.Name.Name + "." + receiver(f) + f.Name.Name
			disks := s.disksOf(f)
			ast.Inspect(f.Body, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is {
					return true
				}
				name := nameOf(call.Fun)
				given := slices.ContainsFunc(call.Args, func(a ast.Expr) bool { return disks[nameOf(a)] })
				sel, method := call.Fun.(*ast.SelectorExpr)
				switch {
				case method && slices.Contains([]string{"DeleteOwned", "ChangeOwners", "MarkFilled"}, name):
					found[place+" "+name] = true
				case method && nameOf(sel.X) == "diskguard" && name == "Delete", method && given && (name == "Delete" || name == "DeleteAllOf"):
					found[place+" delete"] = true
				case given && (isWrite(name) || s.writers[file.Name.Name+"."+name]):
					found[place+" patch"] = true
				}
				return true
			})
		}
	}
	var all []string
	for one := range found {
		if !strings.HasPrefix(one, "diskguard.") && !strings.HasPrefix(one, "datavolume.") {
			all = append(all, one)
		}
	}
	slices.Sort(all)
	return all
}

func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	e := f.Recv.List[0].Type
	if star, is := e.(*ast.StarExpr); is {
		e = star.X
	}
	return nameOf(e) + "."
}

// TestTable: each place of the controller that deletes, patches or disowns a disk has an entry in the table, whose test
// exists, and each entry has its place.
func TestTable(t *testing.T) {
	s := parse(t)
	listed := map[string]bool{}
	for _, e := range diskguard.Table() {
		listed[e.Place+" "+e.Verb] = true
		if !s.tests[e.Test] {
			t.Errorf("%s %s: there is no test %s", e.Place, e.Verb, e.Test)
		}
		if e.What == "" || e.When == "" || e.Checked == "" {
			t.Errorf("%s %s: say what it does, when, and what is checked before", e.Place, e.Verb)
		}
	}
	places := s.places()
	for _, place := range places {
		if !listed[place] {
			t.Errorf("%s: not in diskguard.Table; a place that deletes or writes disks of users needs an entry, with its test", place)
		}
		delete(listed, place)
	}
	for place := range listed {
		t.Errorf("%s: in diskguard.Table, and not in the source", place)
	}
	if len(places) < 20 {
		t.Errorf("only %d places found: %v", len(places), places)
	}
}
