package imports_test

import (
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/test/imports"
)

// TestTypes holds the types of both halves against their bounds.
func TestTypes(t *testing.T) {
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	finder := build.Default
	finder.GOROOT = strings.TrimSpace(string(root)) // which a program built with -trimpath does not know
	foreign := func(path string) (fs.FS, error) {
		p, err := finder.Import(path, "../..", build.FindOnly)
		return os.DirFS(p.Dir), err
	}
	for _, folder := range []string{"controller", "shim"} {
		problems, err := imports.CheckTypes(os.DirFS("../.."), folder, module, imports.Bounds{Type: 30, Interface: 12}, foreign)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			t.Error(problem)
		}
	}
}

// TestCheckTypes: the check counts methods of pointers, of values and of generic
// types, and those of embedded interfaces, and leaves out constraints.
func TestCheckTypes(t *testing.T) {
	files := fstest.MapFS{
		"top/a/a.go": {Data: []byte(`package a
type big struct{ small }
func (*big) one() {}
func (big) two() {}
type generic[T any] struct{}
func (*generic[T]) one() {}
func (generic[T]) two() {}
type small struct{}
func (small) one() {}
type Short interface { One(); error }
type long interface { Short; Two() }
type constraint[T any] interface { *T; Short; Two() }
type union interface { ~int | ~string; One(); Two() }
`)},
		"top/a/b.go":      {Data: []byte("package a\nfunc f() { type inner interface { one(); two() } }\n")},
		"top/a/a_test.go": {Data: []byte("package a\nfunc (small) two() {}\n")},
		"top/b/b.go": {Data: []byte(`package b
import (
	other "example.com/top/a"
	"example.org/far"
)
type across interface { other.Short; two() }
type foreign interface { far.Thing }
`)},
	}
	far := fstest.MapFS{"far.go": {Data: []byte("package far\ntype Thing = thing\ntype thing interface { one(); two() }\n")}}
	foreign := func(string) (fs.FS, error) { return far, nil }
	got, err := imports.CheckTypes(files, "top", "example.com/", imports.Bounds{Type: 1, Interface: 1}, foreign)
	if err != nil {
		t.Fatal(err)
	}
	const aType, anInterface = "%s has 2 methods, the limit is 1: split it by responsibility",
		"%s has 2 methods, the limit for an interface is 1: let each user declare the methods it needs"
	want := []string{
		fmt.Sprintf(aType, "top/a.big"), fmt.Sprintf(aType, "top/a.generic"),
		fmt.Sprintf(anInterface, "top/a.inner"), fmt.Sprintf(anInterface, "top/a.long"),
		fmt.Sprintf(anInterface, "top/b.across"), fmt.Sprintf(anInterface, "top/b.foreign"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCheckTypesOfNoGo(t *testing.T) {
	if _, err := imports.CheckTypes(fstest.MapFS{"x/x.go": {Data: []byte("package")}}, "x", "", imports.Bounds{}, nil); err == nil {
		t.Error("a file that cannot be parsed is accepted")
	}
}
