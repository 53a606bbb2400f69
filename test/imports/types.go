package imports

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Bounds limit how many methods a type and an interface have.
type Bounds struct {
	Type, Interface int
}

// CheckTypes parses the packages below a folder of a module, without their tests.
// It returns a line for each type and each interface with more methods than its
// bound. The methods of a type are those that it declares. Those of an interface
// include the methods of the interfaces that it embeds. A constraint that names types
// has no bound: no value is of it. Elsewhere returns the
// folder of a package that is not below the checked folder.
func CheckTypes(fsys fs.FS, folder, module string, b Bounds, elsewhere func(importPath string) (fs.FS, error)) ([]string, error) {
	c := counter{packages: map[string]*source{}, module: module, elsewhere: elsewhere}
	if err := c.parse(fsys, folder); err != nil {
		return nil, err
	}
	var problems []string
	for _, dir := range slices.Sorted(maps.Keys(c.packages)) {
		p := c.packages[dir]
		for _, name := range slices.Sorted(maps.Keys(p.methods)) {
			if n := p.methods[name]; n > b.Type {
				problems = append(problems, fmt.Sprintf("%s.%s has %d methods, the limit is %d: split it by responsibility", dir, name, n, b.Type))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(p.types)) {
			i, ok := p.types[name].Type.(*ast.InterfaceType)
			if !ok || constrains(i) {
				continue
			}
			n, err := c.count(dir, i, p.types[name].imports)
			if err != nil {
				return nil, fmt.Errorf("count the methods of %s.%s: %w", dir, name, err)
			}
			if n > b.Interface {
				problems = append(problems, fmt.Sprintf("%s.%s has %d methods, the limit for an interface is %d: let each user declare the methods it needs",
					dir, name, n, b.Interface))
			}
		}
	}
	return problems, nil
}

// counter counts the methods of interfaces.
type counter struct {
	packages map[string]*source // by their paths; without the module's in its packages
	module   string
	// elsewhere returns the folder of a package that is not below the checked one.
	elsewhere func(importPath string) (fs.FS, error)
}

// source is what the check needs of one package.
type source struct {
	methods map[string]int // declared methods, by the name of the receiver's type
	types   map[string]typeSpec
}

// typeSpec is a declared type and the imports of its file, by their names there.
type typeSpec struct {
	*ast.TypeSpec
	imports map[string]string
}

// parse parses the packages below a folder.
func (c counter) parse(fsys fs.FS, folder string) error {
	return fs.WalkDir(fsys, folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		dir := path.Dir(file)
		if c.packages[dir] == nil {
			c.packages[dir] = newSource()
		}
		return c.packages[dir].parse(fsys, file)
	})
}

func newSource() *source { return &source{methods: map[string]int{}, types: map[string]typeSpec{}} }

// parse adds a file of the package. It ignores tests and files in other languages.
func (s *source) parse(fsys fs.FS, file string) error {
	if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
		return nil
	}
	text, err := fs.ReadFile(fsys, file)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	imports := map[string]string{}
	for _, i := range parsed.Imports {
		of, _ := strconv.Unquote(i.Path.Value) // the parser has checked it
		name := path.Base(of)
		if i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = of
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				s.methods[receiver(n.Recv.List[0].Type)]++
			}
		case *ast.TypeSpec:
			s.types[n.Name.Name] = typeSpec{n, imports}
		}
		return true
	})
	return nil
}

// constrains reports whether an interface names types that type arguments must have.
func constrains(i *ast.InterfaceType) bool {
	return slices.ContainsFunc(i.Methods.List, func(f *ast.Field) bool {
		switch f.Type.(type) {
		case *ast.StarExpr, *ast.UnaryExpr, *ast.BinaryExpr:
			return len(f.Names) == 0
		}
		return false
	})
}

// receiver returns the name of the type in T, *T or *T[P].
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// count returns how many methods an interface has, and 0 for another type. The type
// occurs in a package, in a file with imports.
func (c counter) count(dir string, e ast.Expr, imports map[string]string) (int, error) {
	switch e := e.(type) {
	case *ast.InterfaceType:
		n := 0
		for _, m := range e.Methods.List {
			if len(m.Names) > 0 {
				n += len(m.Names)
				continue
			}
			embedded, err := c.count(dir, m.Type, imports)
			if err != nil {
				return 0, err
			}
			n += embedded
		}
		return n, nil
	case *ast.IndexExpr:
		return c.count(dir, e.X, imports)
	case *ast.IndexListExpr:
		return c.count(dir, e.X, imports)
	case *ast.Ident:
		if t, ok := c.packages[dir].types[e.Name]; ok {
			return c.count(dir, t.Type, t.imports)
		}
		return 0, nil // predeclared
	case *ast.SelectorExpr:
		of, _ := e.X.(*ast.Ident)
		from := strings.TrimPrefix(imports[of.Name], c.module)
		if err := c.load(from, imports[of.Name]); err != nil {
			return 0, err
		}
		return c.count(from, e.Sel, nil)
	}
	return 0, nil
}

// load parses the package of an import path, unless that has been done.
func (c counter) load(dir, importPath string) error {
	if c.packages[dir] != nil {
		return nil
	}
	if importPath == "" {
		return errors.New("a package's name is not the last part of its path: import it with a name")
	}
	fsys, err := c.elsewhere(importPath)
	if err != nil {
		return err
	}
	files, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return err
	}
	p := newSource()
	for _, f := range files {
		if err := p.parse(fsys, f.Name()); err != nil {
			return err
		}
	}
	c.packages[dir] = p
	return nil
}
